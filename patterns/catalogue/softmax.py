"""Softmax, written out and with a mask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef

from ..fragments import either, floating, reciprocal, restored
from ..pattern import Pattern, attribute, constant, op, value
from ..supergroup import BLOCK, supergroup

_LARGE = 1e3  # less than any number that stands for minus infinity, more than any score
_LOOK_BACK = 8
_MOVING = ("Cast", "CastLike", "Expand", "Gather", "Reshape", "Slice", "Tile", "Transpose", "Unsqueeze")


@supergroup("softmax")
def softmax() -> Pattern:
    """exp(x - max) / sum(exp(x - max)), written out."""
    return _softmax(value("x", where=floating))


def _softmax(x: Pattern) -> Pattern:
    axes = attribute("axes")
    e = op.Exp(x - _peak(x)) | op.Exp(x)
    terms = e | op.Exp(x - _peak(x))
    total = op.ReduceSum(terms, axes=axes, keepdims=1) | restored(op.ReduceSum(terms, axes=axes, keepdims=0))
    return either(e / total, e * reciprocal(total), op.Exp(x - op.ReduceLogSumExp(x, keepdims=1)))


def _peak(x: Pattern) -> Pattern:
    dropped = op.ReduceMax(x, keepdims=0)
    return op.ReduceMax(x, keepdims=1) | restored(dropped | op.Max(dropped, constant()))


def any_softmax(x: Pattern) -> Pattern:
    """Softmax as one op, possibly in another precision, or written out."""
    return op.Softmax(op.Cast(x) | x) | _softmax(x)


@supergroup(BLOCK)
def masked_softmax() -> Pattern:
    """Softmax of scores that a mask is added to, or that a mask replaces by a large negative number."""
    scores, condition, replaced = value("x", where=floating), value("mask"), constant(where=is_masking)
    return any_softmax(
        either(
            scores + value("mask", where=is_mask),
            scores - value("mask", where=is_penalty),
            op.Where(condition, scores, replaced),
            op.Where(condition, replaced, scores),
        )
    )


def is_mask(candidate: Value) -> bool:
    """A graph input, or what is made with numbers that Softmax makes zero: not just any summand."""
    return _is_made_with(candidate, is_masking)


def is_penalty(candidate: Value) -> bool:
    """The same with large positive numbers, which are subtracted from the scores."""
    return _is_made_with(candidate, _is_large)


def is_masking(data: TensorRef) -> bool:
    """Holds large negative numbers; a tensor that is costly to read and no vector of biases is believed."""
    if not data.is_small:
        return len(data.shape) > 1
    return data.size > 0 and bool(np.min(data.numpy()) <= -_LARGE)


def _is_large(data: TensorRef) -> bool:
    return data.is_small and data.size > 0 and bool(np.max(data.numpy()) >= _LARGE)


def _is_made_with(candidate: Value, is_one: Callable[[TensorRef], bool]) -> bool:
    """Looks back from a value, through ops that only move or convert data, for what the numbers come from."""
    current: Value | None = candidate
    for _ in range(_LOOK_BACK):
        if current is None:
            return False
        data, producer = constant_data(current), current.producer
        if data is not None or producer is None:
            return data is None or is_one(data)
        inputs = producer.inputs
        if producer.is_type("Add", "Mul", "Where"):
            constants = [constant_data(value) for value in inputs if value is not None]
            return any(data is not None and is_one(data) for data in constants)
        if not producer.is_type(*_MOVING):
            return False
        current = inputs[0]
    return False
