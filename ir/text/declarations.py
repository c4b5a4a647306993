"""Prints what a graph declares: its inputs and outputs, and types of values within."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, ValueInfoProto

from ..graph import Value
from ..onnx.lower import declared, kept_declarations
from ..onnx.types import declare
from . import said
from .carried import message_bytes, notes
from .runs import runs_text
from .scope import Scope
from .value_types import declared_text
from .words import quoted


class DeclarationPrinter:
    """Prints the declarations of one graph, those of inputs first and those of values within last.

    A declaration is told only as far as the type of its value does not tell it.

    Args:
        origin: the graph as it stood in the model.
    """

    def __init__(self, scope: Scope, origin: GraphProto) -> None:
        self._scope = scope
        self._origin = origin
        self._about: list[str] = []

    def inputs(self) -> str:
        """The inputs with their types."""
        values = scope_inputs = self._scope.graph.inputs
        infos = declared(values, self._origin.input)
        types = (
            self._declared("input", value, info) for value, info in zip(scope_inputs, infos, strict=True)
        )
        return ", ".join(map("".join, zip(self._scope.introduce(values), types, strict=True)))

    def outputs(self) -> str:
        """The statement that names the outputs."""
        outputs = self._scope.graph.outputs
        infos = iter(declared([value for value in outputs if value is not None], self._origin.output))
        names = self._scope.mention_all(outputs)
        types = ("" if value is None else self._declared("output", value, next(infos)) for value in outputs)
        return f"return {', '.join(map(''.join, zip(names, types, strict=True)))}".rstrip()

    def lines(self) -> Iterator[str]:
        """The declarations within the graph, runs of them in the order of the text; then all notes."""
        infos = kept_declarations(self._scope.graph, self._origin)
        if infos:
            yield f"value_info {self._within(infos)}"
        yield from self._about

    def _within(self, infos: list[ValueInfoProto]) -> str:
        order = list(self._scope.order.values())
        places = {value.name: place for place, value in enumerate(order) if self._scope.has_own_name(value)}
        names: list[str] = []
        numbers: list[int | None] = []
        for info in infos:
            place = places.get(info.name)
            if place is None:
                names.append(f"{quoted(info.name)} as {_type(info)}")
                self._note(f"value_info {quoted(info.name)}", info)
            else:
                type = self._declared("value_info", order[place], info)
                names.append(self._scope.name(order[place]) + type)
                place = None if type else place
            numbers.append(place)
        return runs_text(names, numbers)

    def _declared(self, kind: str, value: Value, info: ValueInfoProto) -> str:
        """The declared type, if it is another one than that of the value."""
        plain = declare(value)
        if message_bytes(info) == message_bytes(plain):
            return ""
        self._note(f"{kind} {self._scope.name(value)}", info)
        same = message_bytes(info.type) == message_bytes(plain.type)
        return "" if same and info.HasField("type") == plain.HasField("type") else f" as {_type(info)}"

    def _note(self, subject: str, info: ValueInfoProto) -> None:
        self._about += about_line(subject, notes(info, said.DECLARATION))


def about_line(subject: str, found: list[str]) -> list[str]:
    """The line of the notes about something; none without notes."""
    return [f"about {subject}: {', '.join(found)}"] if found else []


def _type(info: ValueInfoProto) -> str:
    return declared_text(info.type if info.HasField("type") else None)
