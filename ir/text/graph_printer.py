"""Prints one graph: its interface, constants and ops, and what its protos carry besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    OperatorSetIdProto,
)

from ..graph import Graph, Op, Value
from ..model import FunctionKey
from ..onnx.lower import ordered_attributes, ordered_constants
from . import said
from .attributes import GRAPH_TYPES, AttributePrinter
from .carried import notes, notes_in_place
from .declarations import DeclarationPrinter, about_line
from .nodes import PlainNodes
from .runs import runs_text
from .scope import Place, Scope, function_path, graph_word, places
from .tensors import TensorPrinter, tensor_type
from .value_types import type_text
from .words import all_named, quoted, worded


class _Facts(NamedTuple):
    """What the lines of an op are made of."""

    op: Op
    results: tuple[Value | None, ...]
    domain: str
    name: str
    number: int
    place: Place | None


class GraphPrinter:
    """Prints the graphs of one model.

    Args:
        tensors: writes the data of constants.
        blank: the text fields of nodes that the model has even if they are empty.

    Attributes:
        scopes: the names in each graph that is printed.
    """

    def __init__(self, tensors: TensorPrinter, blank: frozenset[str]) -> None:
        self.scopes: dict[Graph, Scope] = {}
        self._tensors = tensors
        self._attributes = AttributePrinter(tensors)
        self._plain = PlainNodes(blank)

    def graph(self, graph: Graph, outer: Scope | None = None, path: str = "", indent: str = "") -> str:
        """A main graph or a nested one; ``indent`` is not before its first line."""
        scope = self.scopes[graph] = Scope(graph, outer, path)
        origin = graph.proto if isinstance(graph.proto, GraphProto) else GraphProto(name=graph.name)
        declarations = DeclarationPrinter(scope, origin)
        head = f"graph {worded(graph.name)}({declarations.inputs()}) {{"
        lines = self._body(scope, origin, declarations, indent + "  ")
        lines += about_line("graph", notes(origin, said.GRAPH, {"name": graph.name}))
        return "\n".join([head, *(f"{indent}  {line}" for line in lines), f"{indent}}}"])

    def function(self, key: FunctionKey, graph: Graph) -> str:
        """A local function."""
        origin, path = graph.proto, function_path(*key)
        assert isinstance(origin, FunctionProto)
        scope = self.scopes[graph] = Scope(graph, None, f" in {path}")
        attributes = [worded(name) for name in origin.attribute]
        attributes += [f"{worded(a.name)}={self._attributes.text(a, path)}" for a in origin.attribute_proto]
        given = f"<{', '.join(attributes)}>" if attributes else ""
        like = GraphProto(value_info=origin.value_info)
        declarations = DeclarationPrinter(scope, like)
        head = f"function {path}{given}({declarations.inputs()}) {{"
        lines = [f"opset {opsets_text(origin.opset_import)}".rstrip()]
        lines += self._body(scope, like, declarations, "  ")
        words = dict(zip(("domain", "name", "overload"), key, strict=True))
        lines += about_line("function", notes(origin, _function_said(graph, origin), words))
        return "\n".join([head, *(f"  {line}" for line in lines), "}"])

    def _body(
        self, scope: Scope, origin: GraphProto, declarations: DeclarationPrinter, indent: str
    ) -> list[str]:
        """The lines from the constants to the notes about ops; ``indent`` is for lines within a line."""
        ops = scope.graph.ops()
        names = all_named([op.name or "_" for op in ops])
        lines = [*_without_source(scope), *self._constants(scope, origin), *_captures(scope)]
        about: dict[str, list[str]] = {}
        for index, (op, name, place) in enumerate(zip(ops, names, places(ops), strict=True)):
            facts = _Facts(op, scope.graph.op_outputs(op), _domain(op), name, index, place)
            lines.append(self._op(scope, facts, indent))
            if op.proto is not None and not self._plain.is_plain(op.proto, op, facts.domain):
                about.setdefault(self._op_notes(facts), []).append(scope.op(facts.results, index))
        more = (f"about {', '.join(names)}: {notes}" for notes, names in about.items() if notes)
        return [*lines, declarations.outputs(), *declarations.lines(), *_later(scope), *more]

    # -- constants ----------------------------------------------------------------------------------

    def _constants(self, scope: Scope, origin: GraphProto) -> Iterator[str]:
        constants = ordered_constants(scope.graph, origin)
        for value in constants.kept:
            yield self._constant("const", scope, value)
        for sparse, value in constants.sparse:
            text = self._attributes.sparse(sparse, scope.name(value) + scope.path)
            yield f"const {_typed(scope, value)} = sparse {text}"
        for value in constants.new:
            yield self._constant("new const", scope, value)

    def _constant(self, word: str, scope: Scope, value: Value) -> str:
        assert value.const is not None
        tensor = value.const.proto
        type = tensor_type(tensor)
        shown = f" {type_text(type)}" if type != value.type else ""
        data = self._tensors.text(tensor, scope.name(value) + scope.path)
        given = f" ={shown}{' ' if data else ''}{data}" if shown or data else ""
        return f"{word} {_typed(scope, value)}{given}"

    # -- ops ----------------------------------------------------------------------------------------

    def _op(self, scope: Scope, facts: _Facts, indent: str) -> str:
        op = facts.op
        inputs = ", ".join(scope.mention_all(scope.graph.op_inputs(op)))
        results = ", ".join(scope.introduce(facts.results)) or "()"
        name = f" @{facts.name}" if op.name else ""
        text = f"{results} = {_kind(facts.domain, op.op_type, op.overload)}({inputs}){name}"
        if op.attributes or op.subgraphs:
            text += self._all_attributes(scope, op, scope.op(facts.results, facts.number), indent)
        if op.proto is None or facts.place is not None:
            text += _history(op, facts.place)
        return text

    def _op_notes(self, facts: _Facts) -> str:
        op = facts.op
        assert op.proto is not None
        words = {"name": op.name, "domain": facts.domain, "overload": op.overload, "doc_string": ""}
        return ", ".join(notes(op.proto, said.NODE, words, self._plain.blank))

    def _all_attributes(self, scope: Scope, op: Op, owner: str, indent: str) -> str:
        items = [self._attribute(scope, op, attribute, owner, indent) for attribute in ordered_attributes(op)]
        if not op.subgraphs:
            return f" {{{', '.join(items)}}}"
        lines = f",\n{indent}  ".join(items)
        return f" {{\n{indent}  {lines}\n{indent}}}"

    def _attribute(self, scope: Scope, op: Op, attribute: AttributeProto, owner: str, indent: str) -> str:
        name = worded(attribute.name)
        if attribute.type not in GRAPH_TYPES:
            return f"{name}={self._attributes.text(attribute, owner + scope.path)}"
        more = notes_in_place(attribute, said.GRAPH_ATTRIBUTE)
        if attribute.type == AttributeProto.GRAPH:
            return f"{name}={self._nested(scope, op, attribute.name, owner, indent)}{more}"
        keys = (f"{attribute.name}:{index}" for index in range(len(attribute.graphs)))
        graphs = (self._nested(scope, op, key, owner, indent) for key in keys)
        return f"{name}=graphs[{', '.join(graphs)}]{more}"

    def _nested(self, scope: Scope, op: Op, key: str, owner: str, indent: str) -> str:
        path = f" in {graph_word(key)} of {owner}{scope.path}"
        return self.graph(op.subgraphs[key], scope, path, indent + "  ")


def opsets_text(entries: Iterable[OperatorSetIdProto]) -> str:
    """Imported operator sets: ``"" 21``; ``21`` where the domain is not there at all."""
    return ", ".join(
        f"{quoted(entry.domain)} {entry.version}" if entry.HasField("domain") else str(entry.version)
        for entry in entries
    )


def _function_said(graph: Graph, origin: FunctionProto) -> frozenset[str]:
    names = [[v.name if v is not None else "" for v in values] for values in (graph.inputs, graph.outputs)]
    same = names == [list(origin.input), list(origin.output)]
    return said.FUNCTION if same else said.FUNCTION - said.INTERFACE


def _typed(scope: Scope, value: Value) -> str:
    return f"{scope.mention(value)}: {type_text(value.type)}"


def _domain(op: Op) -> str:
    """The domain as it is written, since the standard one has two names."""
    written = op.proto.domain if op.proto is not None else op.domain
    return "ai.onnx" if written == "ai.onnx" and not op.domain else op.domain


@lru_cache(maxsize=1 << 12)
def _kind(domain: str, op_type: str, overload: str) -> str:
    kind = f"{worded(domain)}::{worded(op_type)}" if domain else worded(op_type)
    return f"{kind}#{worded(overload)}" if overload else kind


def _history(op: Op, place: Place | None) -> str:
    """For an op that a pass made, why and in whose place."""
    by = "".join(f" {quoted(word)}" for word in op.provenance)
    made = f" by{by}" if op.proto is None else ""
    return made if place is None else f"{made} at {'.'.join(map(str, place))}"


# -- values -----------------------------------------------------------------------------------------


def _without_source(scope: Scope) -> Iterator[str]:
    """Values that are no input and no constant, and that no op makes."""
    graph = scope.graph
    for value in graph.values():
        made = value.const is not None or graph.producer(value) is not None
        if not (made or value.captured is not None or graph.is_input(value)):
            yield f"value {_typed(scope, value)}"


def _captures(scope: Scope) -> Iterator[str]:
    """The stand-ins that the text has to introduce: those that are not just read under their name."""
    if scope.graph.parent is None:
        return
    for value in scope.graph.values():
        captured = value.captured
        if captured is None:
            continue
        if value in scope.second:
            yield f"capture {_typed(scope, value)} = {scope.outside(value)}"
        elif value.type != captured.type or not scope.graph.is_read(value):
            yield f"capture {_typed(scope, value)}"


def _later(scope: Scope) -> Iterator[str]:
    later = scope.later()
    if later:
        places = {id: place for place, id in enumerate(scope.order)}
        yield f"later {runs_text(list(map(scope.name, later)), [places[value.id] for value in later])}"
