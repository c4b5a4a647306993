"""Whole numbers that are floats for a while: places and lengths, which a grid would make others of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from qc.ir.analysis import CONSTANTS, STRUCTURE, TYPES, analysis
from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import is_grid_preserving, traits
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Graph, Op, Value

_INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})


@analysis(STRUCTURE, TYPES, CONSTANTS)
def counts(graph: Graph) -> frozenset[Value]:
    """Floats that are computed from integers and constants alone, and made integers of again.

    TensorFlow's slices are computed so, as are the lengths that are left behind strides. What sums products
    is no such computation.
    """
    scopes = scopes_of(graph)
    counted: set[Value] = set()
    for op in scopes.ops:
        if _counts(op, counted):
            counted.update(value for value in op.outputs if value is not None and value.is_float)
    found: set[Value] = set()
    for op in reversed(scopes.ops):
        made = op.outputs
        if _makes_integers(op) or any(value in found for value in made):
            read = (value.original for value in op.inputs if value is not None)
            found.update(value for value in read if value in counted)
    return frozenset(found)


@analysis(STRUCTURE, TYPES, CONSTANTS)
def tallies(graph: Graph) -> frozenset[Value]:
    """Floats in which products count truth values with whole weights, for an Equal to compare.

    So trees of decisions are computed with products. Of a count that is not exact, nothing is equal.
    """
    compared = [op for op in scopes_of(graph).ops if op.is_type("Equal")]
    return frozenset(value for op in compared for value in _tallies_of(op))


def _tallies_of(op: Op) -> Iterator[Value]:
    """What an Equal reads of a product that counts truth values, and what only moves it on the way."""
    for value in op.inputs:
        moved = list(_moved_from(value))
        maker = moved[-1].producer if moved else None
        if maker is not None and _counts_truths(maker):
            yield from moved


def _moved_from(value: Value | None) -> Iterator[Value]:
    """A value and what it was before ops moved it, backwards."""
    while value is not None:
        value = value.original
        yield value
        maker = value.producer
        value = maker.inputs[0] if maker is not None and is_grid_preserving(maker) else None


def _counts_truths(op: Op) -> bool:
    """Whether an op multiplies truth values, as floats, by whole numbers."""
    if traits(op).product != "matrix":
        return False
    read = [value for value in op.inputs if value is not None]
    constants = [data for value in read if (data := constant_data(value)) is not None]
    others = [value for value in read if constant_data(value) is None]
    is_whole = all(np.array_equal(array, np.rint(array)) for array in (data.numpy() for data in constants))
    return bool(constants) and is_whole and all(map(_is_truth, others))


def _is_truth(value: Value) -> bool:
    *_, first = _moved_from(value)
    maker = first.producer
    source = maker.inputs[0] if maker is not None and maker.is_type("Cast") else None
    return source is not None and source.type.elem_type == TensorProto.BOOL


def _counts(op: Op, counted: set[Value]) -> bool:
    """Whether an op computes from integers, or floats that are counts, and from constants alone."""
    if traits(op).product or op.subgraphs:
        return False
    read = [value.original for value in op.inputs if value is not None]
    data = [value for value in read if value.const is None]
    if op.is_type("Cast"):
        return any(value in counted or value.type.elem_type in _INTEGERS for value in data)
    floats = [value for value in data if value.is_float]
    return bool(floats) and all(value in counted for value in floats)


def _makes_integers(op: Op) -> bool:
    results = op.outputs
    return op.is_type("Cast") and any(
        value is not None and value.type.elem_type in _INTEGERS for value in results
    )
