"""What numbers a tensor can hold, as far as the ops that make it tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Op, Value
from .constants import fixed_constant
from .op_table import ANY_NUMBER
from .op_traits import is_grid_preserving, is_random, stays_within, traits

Range = tuple[float, float]

_DEPTH = 16
_AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def result_range(value: Value) -> Range:
    """The least and the largest number that a tensor can hold; infinite where nothing is known."""
    return _range(value, {}, _DEPTH)


def hull(ranges: Sequence[Range]) -> Range:
    """The least range that contains all; infinite if there are none."""
    lows, highs = zip(*ranges, strict=True) if ranges else ((-np.inf,), (np.inf,))
    return min(lows), max(highs)


def _range(value: Value, known: dict[Value, Range], depth: int) -> Range:
    value = value.original
    op = value.producer
    if op is None or not depth:
        return ANY_NUMBER
    if value not in known:
        known[value] = _result(op, known, depth - 1)
    return known[value]


def _result(op: Op, known: dict[Value, Range], depth: int) -> Range:
    if traits(op).limits != ANY_NUMBER:
        return traits(op).limits
    if op.is_type("Clip"):
        low, high = _limit(op, 1, "min", -np.inf), _limit(op, 2, "max", np.inf)
        return min(low, high), high  # the upper one wins
    inputs = [one for one in op.inputs if one is not None]
    if op.is_type(*_AVERAGES):  # borders of zeros may be averaged as well
        return hull([(0.0, 0.0), _range(inputs[0], known, depth)])
    if stays_within(op) or (is_grid_preserving(op) and not is_random(op)):  # a Dropout that trains enlarges
        return _range(inputs[0], known, depth)
    if op.is_type("Concat"):
        return hull([_range(one, known, depth) for one in inputs])
    if op.is_type("Add", "Sum"):
        lows, highs = zip(*(_range(one, known, depth) for one in inputs), strict=True)
        return sum(lows), sum(highs)
    if op.is_type("Mul", "Div", "ReduceSum"):
        data = inputs if op.is_type("Mul", "Div") else inputs[:1]
        if all(_range(one, known, depth)[0] >= 0 for one in data):
            return 0.0, np.inf
    return ANY_NUMBER


def _limit(op: Op, port: int, name: str, otherwise: float) -> float:
    """A limit of a Clip: an input, or in old opsets an attribute."""
    inputs = op.inputs
    if len(inputs) <= port or inputs[port] is None:
        return float(op.attribute(name, otherwise))
    data = fixed_constant(inputs[port])
    return float(data.numpy().item()) if data is not None and data.size == 1 else otherwise
