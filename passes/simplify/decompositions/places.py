"""Places along axes, counted from their start alone, which is how the HTP counts those that are data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of

_FOUND = {"ArgMax": 0, "ArgMin": 0, "NonZero": 0, "TopK": 1}  # which result tells places, from the start
_OLDEST_OPSET = 9  # which has all ops that are written
_SMALL_NUMBERS = 14  # the first opset that divides integers of 8 and 16 bits
_WIDE = (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE)  # which hold any place
_MOVERS = ("Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")


def from_the_start(op: Op) -> Writer | None:
    """The same Gather, GatherElements or ScatterElements of places that all count from the start.

    None where they are known to. A table of constants is asked for rows by their numbers, as those of words.
    """
    data, places, *others = op.inputs
    lengths = lengths_of(data)
    if data is None or places is None or not lengths or not _may_count_from_end(op, places):
        return None
    if op.is_type("Gather") and data.original.const is not None:
        return None
    axis = op.attribute("axis", 0) % len(lengths)

    def write(build: Builder) -> list[Value | None]:
        counted = counted_from_start(build, places, lengths[axis])
        return [build.same(op, data, counted, *others)]

    return write


def one_hot(op: Op) -> Writer | None:
    """A OneHot of places that all count from the start; those that there are not are beyond its end."""
    places, depth, values = op.inputs
    given = fixed_constant(depth)
    if places is None or given is None or not _may_count_from_end(op, places):
        return None
    length, kind = int(given.numpy().item()), places.type.elem_type
    if length > np.iinfo(helper.tensor_dtype_to_np_dtype(kind)).max:
        return None

    def write(build: Builder) -> list[Value | None]:
        counted = counted_from_start(build, places, length)
        zero, end = (_number(build, one, kind) for one in (0, length))
        is_before = build.op("Less", counted, zero, shape=places.type.shape, type=TensorProto.BOOL)
        known = build.op("Where", is_before, end, counted, shape=places.type.shape, type=kind)
        return [build.same(op, known, depth, values)]

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


def remainder(op: Op) -> Writer | None:
    """The Mod of integers by a constant above 0: what is left of them when whole multiples are taken off.

    Div rounds towards 0, so what is left of numbers below 0 has the divisor added and is divided again.
    """
    (data, by), result = op.inputs, op.outputs[0]
    divisor = fixed_constant(by)
    if data is None or by is None or result is None or divisor is None or op.attribute("fmod", 0):
        return None
    divisors = divisor.numpy()
    if divisors.dtype.kind != "i" or (divisors <= 0).any():
        return None
    if divisors.dtype.itemsize < 4 and op.graph.model.opset < _SMALL_NUMBERS:
        return None
    lengths, is_above = result.type.shape, _count_from_start(data, are_places=False)
    if not is_above and (divisors > np.iinfo(divisors.dtype).max // 2).any():
        return None  # what is left and the divisor would be more than the type holds

    def write(build: Builder) -> list[Value | None]:
        def left_of(number: Value) -> Value:
            whole = build.op("Mul", build.op("Div", number, by, shape=lengths), by, shape=lengths)
            return build.op("Sub", number, whole, shape=lengths)

        left = left_of(data)
        return [left if is_above else left_of(build.op("Add", left, by, shape=lengths))]

    return write


def _may_count_from_end(op: Op, places: Value) -> bool:
    """Whether some of the places of an op may be negative, where others can be written."""
    is_signed = places.type.elem_type in (TensorProto.INT32, TensorProto.INT64)
    return is_signed and op.graph.model.opset >= _OLDEST_OPSET and not _count_from_start(places)


def _count_from_start(places: Value, *, are_places: bool = True) -> bool:
    """Whether places are known not to be negative: found ones, constants, and those that were made so.

    Args:
        are_places: whether they are read as places, so that none lies before the start of its axis.
    """
    asked, seen = [places], {places}
    while asked:
        value = asked.pop()
        given, maker = fixed_constant(value), value.producer
        if given is not None:
            if (given.numpy() < 0).any():
                return False
        elif maker is None:
            return False
        elif not _is_found(value, maker, are_places):
            read = _moved_by(maker)
            if read is None:
                return False
            asked += [one for one in read if one not in seen]
            seen.update(read)
    return True


def _is_found(value: Value, maker: Op, are_places: bool) -> bool:
    """Whether places are what an op found, or were made to count from the start as is done here."""
    inputs = maker.inputs
    if maker.is_type(*_FOUND):
        return maker.outputs[_FOUND[maker.op_type]] is value
    test = _maker(inputs[0]) if maker.is_type("Where") else None
    if test is None or not test.is_type("Less"):
        return False
    tested, limit = test.inputs
    zero, instead, added = fixed_constant(limit), fixed_constant(inputs[1]), _maker(inputs[1])
    if tested is not inputs[2] or zero is None or (zero.numpy() != 0).any():
        return False
    if instead is not None:
        return bool((instead.numpy() >= 0).all())
    if not are_places or added is None or not added.is_type("Add"):
        return False
    number, length = added.inputs
    behind = fixed_constant(length)
    return number is tested and behind is not None and bool((behind.numpy() >= 0).all())


def _maker(value: Value | None) -> Op | None:
    return value.producer if value is not None else None


def _moved_by(op: Op) -> list[Value] | None:
    """The places that an op moves; None if it does something else."""
    inputs = op.inputs
    if op.is_type("Cast") and op.attribute("to") not in _WIDE:
        return None
    read = inputs if op.is_type("Concat") else inputs[:1] if op.is_type(*_MOVERS) else (None,)
    return [value for value in read if value is not None] if None not in read else None


def _number(build: Builder, number: int, kind: int) -> Value:
    return build.constant(np.array(number, helper.tensor_dtype_to_np_dtype(kind)), "number")
