"""What the page tells about an op or a tensor that is clicked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnx import TensorProto

from qc.diff.wiring import GraphWiring, Read, User, Wiring
from qc.ir.facts.constants import constant_data
from qc.ir.facts.qdq import Quantization
from qc.ir.graph import Op, Value
from qc.ir.journal import Remark
from qc.ir.tensor_ref import TensorRef
from qc.rendering.words import count, file_size, printable

from .boxes import key_of
from .modules import Module
from .overlays import Overlay
from .picture import Picture
from .words import element_type, encoding_texts, numbers_text, op_type, port_name, shape_text

Part = tuple[str, str]  # text, and the key of what a click on it leads to, or ""
Fact = tuple[str, list[Part]]

_USERS = 24
_ITEMS = 12


class Cards:
    """Makes the cards of one model."""

    def __init__(self, wiring: Wiring, overlays: Sequence[Overlay] = ()) -> None:
        self._wiring, self._overlays = wiring, overlays
        self._model = wiring.model
        self._remarks: dict[Op | Value, list[Remark]] = {}
        for remark in wiring.model.journal.remarks:
            self._remarks.setdefault(remark.about, []).append(remark)
        self._reads: dict[Value, list[tuple[GraphWiring, User, Read]]] = {}
        for scope in wiring.scopes.values():
            for value, users in scope.users.items():
                for user in users:
                    read = scope.reads[user.op][user.port] if user.port is not None else None
                    self._reads.setdefault(value, []).append((scope, user, read or Read(value)))

    def document(self, pictures: Iterable[Picture]) -> dict[str, Any]:
        """The cards of all ops that are drawn and of all tensors at them, as plain values for JSON."""
        found: dict[str, Any] = {}
        for picture in pictures:
            scope = self._wiring.scopes[picture.graph]
            for box in picture.boxes:
                if isinstance(box.subject, Op):
                    op = box.subject
                    found[key_of(op)] = self._card(op_type(op), op, self._op_facts(scope, op))
                for value in _values_at(scope, box.subject):
                    if key_of(value) not in found:
                        found[key_of(value)] = self._card("Tensor", value, self._value_facts(value))
        return found

    # -- ops ----------------------------------------------------------------------------------------

    def _op_facts(self, scope: GraphWiring, op: Op) -> Iterator[Fact]:
        region = op.region
        if region is not None:
            yield "region", [(str(region), key_of(region.root))]
        for name in op.attributes:
            yield name, [(_attribute(op, name), "")]
        for port, read in enumerate(scope.reads[op]):
            if read is not None:
                yield port_name(op, port), _read_parts(read)
        for captured in scope.captured.get(op, ()):
            yield "captures", [_link(captured)]
        for value in scope.results[op]:
            if value is not None:
                yield "makes", [_link(value), (f" {_type(value)}", "")]
        for key, nested in op.subgraphs.items():
            yield key, [(count(len(nested.ops()), "op"), key_of(nested))]
        for overlay in self._overlays:
            mark = overlay.mark(op)
            if mark is not None:
                yield overlay.name, [(mark[1], "")]
        if op.provenance:
            yield "made by", [(", ".join(op.provenance), "")]

    # -- tensors ------------------------------------------------------------------------------------

    def _value_facts(self, value: Value) -> Iterator[Fact]:
        yield "type", [(_type(value), "")]
        data = constant_data(value)
        if data is not None:
            yield "constant", [(_constant(data), "")]
        behind = self._wiring.read(value).value
        if behind is not value:
            yield "rounds", [_link(behind)]
        scope = self._wiring.scopes[value.graph]
        producer = scope.producer.get(value)
        if producer is not None:
            yield "made by", [(producer.label, key_of(producer))]
        reads = self._reads.get(value, [])
        for _, user, _ in reads[:_USERS]:
            yield "read by", [(_user_label(user), key_of(user.op))]
        if len(reads) > _USERS:
            yield "read by", [(f"and {len(reads) - _USERS:,} more", "")]
        for output in scope.given_as.get(value, ()):
            yield "output", [_link(output)]
        yield from self._quantization(value, reads)

    def _quantization(self, value: Value, reads: list[tuple[GraphWiring, User, Read]]) -> Iterator[Fact]:
        """Every rounding with its numbers; why the tensor stays float, if it does."""
        grids: dict[object, tuple[Quantization, list[User]]] = {}
        for _, user, read in reads:
            for one in read.quantizations:
                grids.setdefault((one.grid, one.narrow), (one, []))[1].append(user)
        for one, users in grids.values():
            yield "quantized", [(_quantization_title(one), "")]
            if len(users) < len(reads):
                yield "for", [(_user_label(user), key_of(user.op)) for user in users[:_ITEMS]]
            if one.encoding is None:
                yield "state", [("not calibrated", "")]
            else:
                yield from ((name, [(text, "")]) for name, text in encoding_texts(one.encoding).items())
            yield from self._ties(value, one)
        reason = None if grids else self._model.quant.why_not(value)
        if reason is not None:
            yield "stays float", [(reason, "")]

    def _ties(self, value: Value, quantization: Quantization) -> Iterator[Fact]:
        if quantization.quantizer is None:
            return
        sites = self._model.quant.sites_of(quantization.quantizer)
        others = [other for other in dict.fromkeys(site.value for site in sites) if other is not value]
        if others:
            parts = [_link(other) for other in others[:_ITEMS]]
            more = [(f"and {len(others) - _ITEMS} more", "")] if len(others) > _ITEMS else []
            yield "tied to", [*parts, *more]

    def _card(self, kind: str, subject: Op | Value, facts: Iterable[Fact]) -> dict[str, Any]:
        return {
            "kind": printable(kind),
            "name": printable(subject.name),
            "facts": _plain(facts),
            "history": _plain(self._history(subject)),
        }

    def _history(self, subject: Op | Value) -> Iterator[Fact]:
        """What was done to an op or a tensor and decided about it, with the reason."""
        for remark in self._remarks.get(subject, ()):
            number = f"{remark.number} " if remark.number else ""
            asked = f", asked by {remark.asked_by}" if remark.asked_by else ""
            hint = f"; {remark.suggestion}" if remark.suggestion else ""
            yield f"{number}{remark.pass_name}", [(f"{remark.kind}: {remark.reason}{asked}{hint}", "")]


def _values_at(scope: GraphWiring, subject: Op | Module | Value) -> Iterator[Value]:
    """The tensor itself, or what an op reads and makes; the ops of a module are drawn elsewhere."""
    if isinstance(subject, Value):
        yield subject
    if not isinstance(subject, Op):
        return
    yield from (read.value for read in scope.reads[subject] if read is not None)
    yield from scope.captured.get(subject, ())
    yield from (value for value in scope.results[subject] if value is not None)


def _plain(facts: Iterable[Fact]) -> list[list[Any]]:
    return [[printable(label), [[printable(text), key] for text, key in parts]] for label, parts in facts]


def _link(value: Value) -> Part:
    return value.name, key_of(value)


def _user_label(user: User) -> str:
    return user.op.label if user.port is not None else f"inside {user.op.label}"


def _read_parts(read: Read) -> list[Part]:
    formats = "".join(f" {one.spec.format}" for one in read.quantizations)
    return [_link(read.value), (f" {_type(read.value)}{formats}", "")]


def _type(value: Value) -> str:
    return f"{element_type(value.type.elem_type)} {shape_text(value.type.shape)}".strip()


def _quantization_title(one: Quantization) -> str:
    quantizer = f"{one.quantizer.name} " if one.quantizer is not None else ""
    made = f", by {' and '.join(op.op_type for op in one.ops)}" if one.ops else ""
    return f"{quantizer}{one.spec}{made}"


def _constant(data: TensorRef) -> str:
    size = file_size(data.nbytes)
    return f"{numbers_text(data)} ({size})" if data.is_small else f"{data.size:,} elements, {size}"


def _attribute(op: Op, name: str) -> str:
    """The value of an attribute in short."""
    proto = op.attributes[name]
    if proto.ref_attr_name:
        return f"@{proto.ref_attr_name}"
    value = op.attribute(name)
    if isinstance(value, TensorProto):
        return numbers_text(TensorRef(value, op.graph.model.base_dir))
    if isinstance(value, list):
        more = f", ... {len(value)} in all" if len(value) > _ITEMS else ""
        return f"[{', '.join(map(str, value[:_ITEMS]))}{more}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
