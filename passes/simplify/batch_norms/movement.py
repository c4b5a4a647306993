"""Where the channels of a convolution or a product lie behind ops that only move its result."""

from __future__ import annotations

from typing import NamedTuple

from qc.ir.facts.constants import initializer
from qc.ir.graph import Op, Value

from .affine import constant_of

_CHANNELS = 1
_ROWS = ("MatMul", "Add")  # a product by a matrix, and the bias behind it, have channels on the last axis
_RESHAPES = ("Flatten", "Reshape")


class Channels(NamedTuple):
    """What a tensor was moved from, its rank, and the axis on which it has the channels of that."""

    made: Value
    rank: int
    axis: int


def channels_of(value: Value) -> Channels | None:
    """The channels of a value behind ops that move them; None if they are lost or not known.

    These are Transpose, Squeeze, Unsqueeze, and a Flatten or Reshape that leaves rows as they are.
    """
    producer = value.producer
    if producer is None:
        return None
    if not producer.is_type("Transpose", "Squeeze", "Unsqueeze", *_RESHAPES):
        rank = _rank(value, producer)
        axis = rank - 1 if rank is not None and producer.is_type(*_ROWS) else _CHANNELS
        return Channels(value, rank, axis) if rank is not None else None
    source = producer.inputs[0]
    if source is None or not source.is_read_once:
        return None
    found = channels_of(source)
    axes = _order(producer, found.rank) if found is not None else None
    if found is None or axes is None or found.axis not in axes:
        return None
    return Channels(found.made, len(axes), axes.index(found.axis))


def _rank(value: Value, producer: Op) -> int | None:
    """That of a result; where its type does not say, a convolution or a product has that of its weight."""
    if value.type.shape is not None:
        return len(value.type.shape)
    weight = constant_of(producer.inputs[1]) if producer.num_inputs > 1 else None
    return len(weight.shape) if weight is not None else None


def _order(op: Op, rank: int) -> list[int | None] | None:
    """By axis of the result the one of the input, or None for a new one; None if that is not known."""
    if op.is_type("Transpose"):
        return list(op.attribute("perm", range(rank)[::-1]))
    if op.is_type(*_RESHAPES):
        return _rows(op, rank)
    given = op.attribute("axes", None)
    if op.num_inputs > 1:
        const = initializer(op.inputs[1])
        given = const.numpy().tolist() if const is not None else None
    if given is None:
        return None
    if op.is_type("Squeeze"):
        return [axis for axis in range(rank) if axis not in {number % rank for number in given}]
    whole = rank + len(given)
    left = iter(range(rank))
    new = {number % whole for number in given}
    return [None if axis in new else next(left) for axis in range(whole)]


def _rows(op: Op, rank: int) -> list[int | None] | None:
    """The order of an op that leaves the last axis as it is; of the others none is known."""
    read, made = op.inputs[0], op.outputs[0]
    before, after = (value.type.shape if value is not None else None for value in (read, made))
    if not before or not after or before[-1] != after[-1] or not isinstance(after[-1], int):
        return None
    return [*[None] * (len(after) - 1), rank - 1]
