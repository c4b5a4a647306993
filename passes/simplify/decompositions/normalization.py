"""Normalizations as others that devices have."""

from __future__ import annotations

from math import prod

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape

from ..batch_norms.affine import affine_of
from .builder import Builder, Writer, lengths_of

_TABLE = 2  # dimensions of samples by channels


def batch_norm(op: Op) -> Writer | None:
    """A convolution of each channel by itself, whose one weight is the scale and whose bias is the shift."""
    data, affine = op.inputs[0], affine_of(op)
    shape = data.type.shape if data is not None else None
    if data is None or affine is None or shape is None or len(shape) < _TABLE:
        return None

    def write(build: Builder) -> list[Value | None]:
        places = len(shape) - _TABLE or 1
        read = data if len(shape) > _TABLE else _with_position(build, data, (*shape, 1))
        weight = affine.scale.reshape(-1, 1, *(1,) * places).astype(np.float32)
        made = build.op(
            "Conv",
            read,
            build.constant(weight, "scale"),
            build.constant(affine.shift.astype(np.float32), "shift"),
            shape=read.type.shape,
            group=len(weight),
            kernel_shape=[1] * places,
        )
        return [made if len(shape) > _TABLE else build.op("Flatten", made, shape=shape, axis=1)]

    return write


def _with_position(build: Builder, data: Value, shape: Shape) -> Value:
    """Samples by channels, with one position more; a 0 keeps the length that a dimension has."""
    kept = build.constant(np.array([0, 0, 1], np.int64), "shape")
    return build.op("Reshape", data, kept, shape=shape)


def layer_norm(op: Op) -> Writer | None:
    """A Layer- or RMSNormalization over several axes, of constants, as one over the last alone."""
    data, *parameters = op.inputs
    lengths, constants = lengths_of(data), [fixed_constant(value) for value in parameters]
    results = op.outputs
    is_read = any(value is not None and value.is_read for value in results[1:])
    if data is None or lengths is None or None in constants or is_read:
        return None
    axis = op.attribute("axis", -1) % len(lengths)
    normalized = lengths[axis:]
    if len(normalized) == 1:
        return None
    flat = (*lengths[:axis], prod(normalized))
    arrays = [_within(one.numpy(), normalized) for one in constants if one is not None]
    known = [array for array in arrays if array is not None]
    if len(known) < len(arrays):
        return None

    def write(build: Builder) -> list[Value | None]:
        read = [build.constant(np.ascontiguousarray(array.ravel()), "parameter") for array in known]
        given = {name: op.attribute(name) for name in op.attributes} | {"axis": -1}
        made = build.op(op.op_type, build.reshape(data, flat), *read, shape=flat, **given)
        return [build.reshape(made, lengths), *(None for _ in results[1:])]

    return write


def _within(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The numbers for a shape, of an array that may have leading axes of one number; None if of no such."""
    whole = np.broadcast_shapes(array.shape, shape)
    return np.broadcast_to(array, whole).reshape(shape) if prod(whole) == prod(shape) else None


def group_norm(op: Op) -> Writer | None:
    """An InstanceNormalization of groups as channels, and a scale and a bias for each channel behind it.

    These are its own where each channel is a group.
    """
    data, *parameters = op.inputs
    lengths, constants = lengths_of(data), [fixed_constant(value) for value in parameters]
    if data is None or lengths is None or len(lengths) <= _TABLE or None in constants:
        return None
    groups, channels = int(op.attribute("num_groups", 0)), lengths[1]
    if groups < 1 or channels % groups:
        return None
    per_channel = (channels, *(1,) * (len(lengths) - _TABLE))
    epsilon = op.attribute("epsilon", 1e-5)
    if groups == channels:
        given = [data, *parameters]
        return lambda build: [build.op("InstanceNormalization", *given, shape=lengths, epsilon=epsilon)]
    rows = (lengths[0], groups, prod(lengths[1:]) // groups)

    def write(build: Builder) -> list[Value | None]:
        plain = (build.constant(number(groups, np.float32), "plain") for number in (np.ones, np.zeros))
        read = build.reshape(data, rows)
        made = build.op("InstanceNormalization", read, *plain, shape=rows, epsilon=epsilon)
        made = build.reshape(made, lengths)
        for name, one in zip(("Mul", "Add"), constants, strict=True):
            assert one is not None
            constant = build.constant(one.numpy().reshape(per_channel), name.lower())
            made = build.op(name, constant, made, shape=lengths)
        return [made]

    return write
