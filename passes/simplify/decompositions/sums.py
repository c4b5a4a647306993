"""Sums as others that devices have."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

from .builder import Builder, Lengths, Writer, lengths_of

_FLOATS = np.finfo(np.float32)
_LONGEST = 1024  # of the axis of a CumSum, whose matrix has the square of that


def cumulative(op: Op) -> Writer | None:
    """A CumSum as the product by a matrix of ones on one side of its diagonal, and zeros on the other."""
    data, given = op.inputs
    lengths, place = lengths_of(data), fixed_constant(given)
    if data is None or not lengths or place is None:
        return None
    axis = int(place.numpy().item()) % len(lengths)
    if lengths[axis] > _LONGEST:
        return None
    ones = np.triu(np.ones((lengths[axis],) * 2, np.float32), 1 if op.attribute("exclusive", 0) else 0)
    matrix = ones.T if op.attribute("reverse", 0) else ones
    order = [*(one for one in range(len(lengths)) if one != axis), axis]
    rows = tuple(lengths[one] for one in order)

    def write(build: Builder) -> list[Value | None]:
        is_last = axis == len(lengths) - 1
        read = data if is_last else build.op("Transpose", data, shape=rows, perm=order)
        read = build.reshape(read, (1, *rows)) if len(rows) == 1 else read
        made = build.op("MatMul", read, build.constant(matrix, "ones"), shape=read.type.shape)
        made = build.reshape(made, rows)
        back = np.argsort(order).tolist()
        return [made if is_last else build.op("Transpose", made, shape=lengths, perm=back)]

    return write


def of_sum(op: Op) -> Writer | None:
    """A ReduceL1, ReduceLogSum or ReduceSumSquare by the ReduceSum of magnitudes, numbers or squares."""
    read, wanted = op.inputs, lengths_of(op.outputs[0])
    data, lengths, axes = read[0], lengths_of(read[0]), attribute_of(op, "axes", read)
    if data is None or lengths is None or wanted is None or not isinstance(axes, tuple) or not axes:
        return None

    def write(build: Builder) -> list[Value | None]:
        summed: Value = data
        if op.is_type("ReduceL1"):
            summed = build.op("Abs", data, shape=lengths)
        elif op.is_type("ReduceSumSquare"):
            summed = build.op("Mul", data, data, shape=lengths)
        made = build.along(axes, "ReduceSum", summed, shape=wanted, keepdims=op.attribute("keepdims", 1))
        return [build.op("Log", made, shape=wanted) if op.is_type("ReduceLogSum") else made]

    return write


def sum_of_products(op: Op) -> Writer | None:
    """A ReduceSum of what a Mul made that drops the axes it adds up along, as one that keeps them.

    The HTP, in 16 bits, runs both as one product, and computes other numbers altogether.
    """
    data = op.inputs[0]
    maker = data.producer if data is not None else None
    if maker is None or not maker.is_type("Mul") or op.attribute("keepdims", 1):
        return None
    found = _added_up(op)
    return _keeping_axes(op, *found) if found is not None else None


def mean_of_several(op: Op) -> Writer | None:
    """A ReduceMean along axes of which some have one number, as one along the others.

    In 16 bits the HTP computes other numbers altogether of data that was transposed and got such an axis.
    """
    found = _added_up(op)
    if found is None:
        return None
    lengths, along = found
    several = {axis for axis in along if lengths[axis] > 1}
    return _keeping_axes(op, lengths, several) if several and several != along else None


def _added_up(op: Op) -> tuple[Lengths, set[int]] | None:
    """The lengths of what an op adds up, and the axes along which; None if they are not known."""
    lengths, axes = lengths_of(op.inputs[0]), attribute_of(op, "axes", op.inputs)
    if not lengths or not isinstance(axes, tuple) or not axes:
        return None
    return lengths, {axis % len(lengths) for axis in axes}


def _keeping_axes(op: Op, lengths: Lengths, along: set[int]) -> Writer | None:
    """The same op along some axes, which it keeps, with a Reshape behind it where that is not the result."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    if data is None or wanted is None:
        return None
    kept = tuple(1 if axis in along else length for axis, length in enumerate(lengths))

    def write(build: Builder) -> list[Value | None]:
        made = build.along(sorted(along), op.op_type, data, shape=kept, keepdims=1)
        return [build.reshape(made, wanted)]

    return write


def log_sum_exp(op: Op) -> Writer | None:
    """The largest number, made finite, and the logarithm of the sum of powers of what lies around it."""
    data, lengths, wanted = op.inputs[0], lengths_of(op.inputs[0]), lengths_of(op.outputs[0])
    axes = attribute_of(op, "axes", op.inputs)
    if data is None or lengths is None or wanted is None or not isinstance(axes, tuple) or not axes:
        return None
    along = {axis % len(lengths) for axis in axes}
    kept = tuple(1 if axis in along else length for axis, length in enumerate(lengths))

    def write(build: Builder) -> list[Value | None]:
        largest = build.along(axes, "ReduceMax", data, shape=kept, keepdims=1)
        ends = (build.constant(np.array(end), "end") for end in (_FLOATS.min, _FLOATS.max))
        largest = build.op("Clip", largest, *ends, shape=kept)  # the difference of two infinities is none
        powers = build.op("Exp", build.op("Sub", data, largest, shape=lengths), shape=lengths)
        total = build.along(axes, "ReduceSum", powers, shape=kept, keepdims=1)
        made = build.op("Add", build.op("Log", total, shape=kept), largest, shape=kept)
        return [build.reshape(made, wanted)]

    return write
