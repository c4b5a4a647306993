"""Places along axes, counted from their start alone, which is how the HTP counts those that are data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of

_FOUND = ("ArgMax", "ArgMin", "NonZero", "TopK")  # ops that tell places, from the start
_MOVERS = ("Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")


def from_the_start(op: Op) -> Writer | None:
    """The same Gather, GatherElements or ScatterElements of places that all count from the start.

    None where they are known to. A table of constants is asked for rows by their numbers, as those of words.
    """
    data, places, *others = op.graph.op_inputs(op)
    lengths = lengths_of(data)
    if data is None or places is None or not lengths or data.original.const is not None:
        return None
    if _count_from_start(places):
        return None
    axis = op.attribute("axis", 0) % len(lengths)

    def write(build: Builder) -> list[Value | None]:
        counted = counted_from_start(build, places, lengths[axis])
        return [build.same(op, data, counted, *others)]

    return write


def one_hot(op: Op) -> Writer | None:
    """A OneHot of places that all count from the start."""
    places, depth, values = op.graph.op_inputs(op)
    length = fixed_constant(depth)
    if places is None or length is None or _count_from_start(places):
        return None

    def write(build: Builder) -> list[Value | None]:
        counted = counted_from_start(build, places, int(length.numpy().item()))
        return [build.same(op, counted, depth, values)]

    return write


def counted_from_start(build: Builder, places: Value, length: int) -> Value:
    """Places along an axis, those that count from its end, which are negative, made ones from its start."""
    if _count_from_start(places):
        return places
    shape, kind = places.type.shape, places.type.elem_type
    zero, end = (_number(build, one, kind) for one in (0, length))
    is_behind = build.op("Less", places, zero, shape=shape, type=TensorProto.BOOL)
    from_start = build.op("Add", places, end, shape=shape, type=kind)
    return build.op("Where", is_behind, from_start, places, shape=shape, type=kind)


def numbered(build: Builder, places: Value, lengths: Lengths, of_batch: int = 0) -> Value:
    """The numbers that places have, if those along all axes are counted in one.

    Args:
        places: integers, shape ``(..., axes)``, of which all are known.
        lengths: those of the axes.
        of_batch: so many of the first axes of the places are those of data before these, and counted too.
    """
    shape, kind = (lengths_of(places) or ())[:-1], places.type.elem_type
    axes = [axis for axis, length in enumerate(lengths) if length != 1] or [len(lengths) - 1]

    def made(op_type: str, *inputs: Value, **more: Any) -> Value:
        return build.op(op_type, *inputs, shape=shape, type=kind, **more)

    number = None
    for axis in axes:
        along = made("Gather", places, build.constant(np.array(axis), "axis"), axis=len(shape))
        along = counted_from_start(build, along, lengths[axis])
        if number is not None:
            along = made("Add", made("Mul", number, _number(build, lengths[axis], kind)), along)
        number = along
    assert number is not None, "there is an axis at the least"
    if not of_batch:
        return number
    samples = shape[:of_batch]
    firsts = prod(lengths) * np.arange(prod(samples), dtype=helper.tensor_dtype_to_np_dtype(kind))
    firsts = firsts.reshape(*samples, *(1 for _ in shape[of_batch:]))
    return made("Add", number, build.constant(firsts, "firsts"))


def _count_from_start(places: Value | None) -> bool:
    """Whether places are known not to be negative: found ones, constants, and those that were made so."""
    if places is None:
        return False
    given, maker = fixed_constant(places), places.graph.producer(places)
    if given is not None or maker is None:
        return given is not None and bool((given.numpy() >= 0).all())
    if maker.is_type(*_FOUND):
        return True
    inputs = places.graph.op_inputs(maker)
    test = places.graph.producer(inputs[0]) if maker.is_type("Where") and inputs[0] is not None else None
    if test is not None and test.is_type("Less"):  # as counted_from_start makes them
        compared = test.graph.op_inputs(test)
        return compared[0] is inputs[2] and _count_from_start(compared[1])
    read = inputs if maker.is_type("Concat") else inputs[:1] if maker.is_type(*_MOVERS) else [None]
    return all(_count_from_start(value) for value in read)


def _number(build: Builder, number: int, kind: int) -> Value:
    return build.constant(np.array(number, helper.tensor_dtype_to_np_dtype(kind)), "number")
