"""How constants differ."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.graph import Op, Value
from qc.ir.value_type import ValueType

from .contents import is_stored
from .numbers import Distance, limited, real_values, rounding_error
from .pairs import GraphPair, ModelPair
from .result import ADDED, CHANGED, CONSTANTS, REMOVED, Difference
from .wiring import GraphWiring, Read


def constant_differences(comparison: ModelPair) -> Iterator[Difference]:
    """Constants that changed, and those that came or went alone; the others are told with their ops."""
    alignment = comparison.alignment
    for pair in comparison.scopes:
        for a, b in _pairs(comparison, pair):
            found = _compared(comparison, a, b)
            if found is not None:
                detail, numbers = found
                subject = f"'{a.value.name}'"
                yield Difference(CHANGED, CONSTANTS, subject, detail, pair.label, numbers=numbers)
        for value in _alone(pair.a, alignment.values, alignment.ops):
            yield Difference(REMOVED, CONSTANTS, f"'{value.name}'", str(value.type), pair.label)
        folded = {read.value for fold in pair.folds.values() for read in fold.results}
        for value in _alone(pair.b, alignment.values_back, alignment.ops_back):
            if value not in folded:
                yield Difference(ADDED, CONSTANTS, f"'{value.name}'", str(value.type), pair.label)


def _pairs(comparison: ModelPair, pair: GraphPair) -> Iterator[tuple[Read, Read]]:
    """The constants that paired ops read at the same port, and those that nothing reads; each pair once."""
    seen: set[tuple[Value, Value]] = set()
    contents = comparison.contents
    for op, partner in comparison.pairs(pair):
        folded = pair.folds[op].ports if op in pair.folds else ()
        for port, (a, b) in enumerate(zip(pair.a.reads[op], pair.b.reads[partner], strict=False)):
            if a is None or b is None or port in folded or (a.value, b.value) in seen:
                continue
            if contents.data(a.value) is not None and contents.data(b.value) is not None:
                seen.add((a.value, b.value))
                yield a, b
    for value in pair.a.constants:
        other = comparison.alignment.values.get(value)
        if value not in pair.a.users and other is not None:
            yield Read(value), Read(other)


def _alone(scope: GraphWiring, paired: Container[Value], ops: Container[Op]) -> Iterator[Value]:
    """Constants without a partner that a paired op reads, or none."""
    for value in scope.constants:
        users = scope.users.get(value, [])
        if value not in paired and (not users or any(user.op in ops for user in users)):
            yield value


def _compared(comparison: ModelPair, a: Read, b: Read) -> tuple[str, dict[str, float]] | None:
    """How two constants differ, in words and numbers; None if they do not."""
    rounded = is_stored(a) != is_stored(b)
    if comparison.contents.equal(a.value, b.value):
        if rounded or is_stored(a) or _form(a.value) == _form(b.value):
            return None
        return f"was {_form(a.value)}, is {_form(b.value)}", {}
    data_a, data_b = comparison.contents.data(a.value), comparison.contents.data(b.value)
    assert data_a is not None and data_b is not None
    type_a, type_b = ValueType(data_a.data_type, data_a.shape), ValueType(data_b.data_type, data_b.shape)
    if type_a.shape != type_b.shape or (type_a != type_b and not rounded):
        return f"{type_a} -> {type_b}", {}
    if not rounded:
        return _told(Distance.between(data_a.numpy(), data_b.numpy(), np.zeros(())), "")
    try:
        tolerance = rounding_error(a, data_a) + rounding_error(b, data_b)
        values_a = limited(real_values(a, data_a), b, data_b)
        values_b = limited(real_values(b, data_b), a, data_a)
        distance = Distance.between(values_a, values_b, tolerance)
    except UsageError as error:
        return f"cannot be compared: {error}", {}
    return _told(distance, " by more than rounding") if distance.different else None


def _form(value: Value) -> str:
    return "an initializer" if value.const is not None else "a Constant op"


def _told(distance: Distance, how: str) -> tuple[str, dict[str, float]]:
    if not distance.different:
        return "other bits, but equal values", {}
    numbers: dict[str, float] = {"size": distance.size, "different": distance.different}
    words = f"{distance.different:,} of {distance.size:,} values differ{how}"
    if distance.largest:
        if np.isfinite(distance.largest):
            numbers["max_error"] = distance.largest
        words += f", by at most {distance.largest:.3g}"
    if distance.sqnr_db is not None:
        numbers["sqnr_db"] = distance.sqnr_db
        words += f", SQNR {distance.sqnr_db:.1f} dB"
    return words, numbers
