"""Analyses of what flows through a graph and its bodies: data or mere shapes, finite numbers or infinity."""

from __future__ import annotations

from typing import TypeGuard

from onnx import TensorProto

from .analysis import CONSTANTS, STRUCTURE, TYPES, analysis
from .graph import Graph, Op, Value
from .op_traits import is_grid_preserving
from .scopes import scopes_of

# Numbers from here on stand for infinity, as in masks of attention: next to them float32 has no fractions.
_AS_INFINITE = 2.0**24
# Ops whose result can hold an infinity of any input; those that only move data take it from the first.
_PASSING = ("Add", "Cast", "CastLike", "Concat", "Mul", "Sub", "Sum", "Trilu", "Where")


def reads_shape_only(op: Op) -> bool:
    """Whether the op reads the shape of a tensor and not its numbers."""
    return op.is_type("Shape", "Size")


def is_plain_float(value: Value) -> bool:
    """Whether the value is a float32 tensor; 16-bit floats are left as they are."""
    return value.original.type.elem_type == TensorProto.FLOAT


@analysis(STRUCTURE, CONSTANTS)
def data_values(graph: Graph) -> frozenset[Value]:
    """Values that depend on the numbers of a graph input, be it of a body, and not on shapes alone."""
    scopes = scopes_of(graph)
    data = {value for inner in scopes.graphs for value in inner.inputs if value.const is None}
    for op in scopes.ops:
        read = [*op.graph.op_inputs(op), *(value for body in op.subgraphs.values() for value in body.outputs)]
        depends = any(value is not None and value.original in data for value in read)
        if depends and not reads_shape_only(op):
            data.update(value for value in op.graph.op_outputs(op) if value is not None)
    return frozenset(data)


@analysis(STRUCTURE, TYPES, CONSTANTS)
def infinite_values(graph: Graph) -> frozenset[Value]:
    """Values that can hold an infinity of a constant, or what stands for it: scores behind a mask."""
    scopes = scopes_of(graph)
    found: set[Value] = set()
    holding: dict[Value, bool] = {}

    def may_be_infinite(value: Value | None) -> bool:
        if value is None:
            return False
        value = value.original
        if value.const is not None and value not in holding:
            holding[value] = holds_infinity(value)
        return value in found or holding.get(value, False)

    while True:
        count = len(found)
        for op in scopes.ops:
            if any(map(may_be_infinite, _passing_inputs(op))):
                found.update(filter(_is_float, op.graph.op_outputs(op)))
            for passage in scopes.passages.get(op, ()):
                if any(map(may_be_infinite, passage.sources)):
                    found.update(filter(_is_float, passage.results))
        # Only what a loop carries around can have changed something that was visited before.
        if len(found) == count or not scopes.passages:
            return frozenset(found)


def _passing_inputs(op: Op) -> tuple[Value | None, ...]:
    """The inputs whose infinity can become one of a result."""
    inputs = op.graph.op_inputs(op)
    if is_grid_preserving(op):
        return inputs[:1]
    return inputs if op.is_type(*_PASSING) else ()


def _is_float(value: Value | None) -> TypeGuard[Value]:
    return value is not None and value.is_float


def holds_infinity(value: Value) -> bool:
    """Whether a float32 constant has an infinity, or a number that stands for it."""
    if value.const is None or not is_plain_float(value):
        return False
    low, high = value.const.extremes()
    return max(high, -low) >= _AS_INFINITE
