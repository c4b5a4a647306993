"""How paired tensors and ops differ in type and in name."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.graph import Value
from qc.ir.value_type import ValueType

from .pairs import GraphPair, ModelPair
from .result import CHANGED, NAMES, TYPES, Difference


def type_differences(comparison: ModelPair) -> Iterator[Difference]:
    """Computed tensors whose type is known in both models and differs."""
    for pair in comparison.scopes:
        outside = _outside(pair)
        for a, b in _made(comparison, pair):
            if a not in outside and _contradict(a.type, b.type):
                yield Difference(CHANGED, TYPES, f"'{a.name}'", f"{a.type} -> {b.type}", pair.label)


def name_differences(comparison: ModelPair) -> Iterator[Difference]:
    """Tensors, constants and ops with another name; inputs and outputs of the model are told as such."""
    for pair in comparison.scopes:
        outside = _outside(pair)
        for a, b in (*_made(comparison, pair), *_constants(comparison, pair)):
            if a.name != b.name and a not in outside:
                yield Difference(CHANGED, NAMES, f"'{a.name}'", f"is '{b.name}'", pair.label)
        for op, partner in comparison.pairs(pair):
            if op.name != partner.name:
                yield Difference(
                    CHANGED, NAMES, f"{op.op_type} '{op.name}'", f"is '{partner.name}'", pair.label
                )


def _made(comparison: ModelPair, pair: GraphPair) -> Iterator[tuple[Value, Value]]:
    """The paired tensors that ops make."""
    for op, _ in comparison.pairs(pair):
        for value in pair.a.results[op]:
            partner = comparison.alignment.values.get(value) if value is not None else None
            if value is not None and partner is not None:
                yield value, partner


def _constants(comparison: ModelPair, pair: GraphPair) -> Iterator[tuple[Value, Value]]:
    """The paired constants; one whose codes are stored, or into which something was folded, is a new one."""
    folded = {read.value for fold in pair.folds.values() for read in fold.results}
    for value in pair.a.constants:
        partner = comparison.alignment.values.get(value)
        if partner is None or partner in folded:
            continue
        if value.type.elem_type == partner.type.elem_type:
            yield value, partner


def _outside(pair: GraphPair) -> set[Value | None]:
    """What the comparison of the interface tells about: nothing of a subgraph or function."""
    return set() if pair.by_position else {*pair.a.graph.inputs, *pair.a.graph.outputs}


def _contradict(a: ValueType, b: ValueType) -> bool:
    """Whether two types differ in something that is known of both."""
    if not a.elem_type or not b.elem_type:
        return False
    if a.elem_type != b.elem_type:
        return True
    if a.shape is None or b.shape is None:
        return False
    sizes = zip(a.shape, b.shape, strict=False)
    return len(a.shape) != len(b.shape) or any(
        one != other and _is_known(one) and _is_known(other) for one, other in sizes
    )


def _is_known(size: int | str | None) -> bool:
    """Whether a size is a number, or has a name that ONNX's shape inference did not make up."""
    return size is not None and not str(size).startswith("unk__")
