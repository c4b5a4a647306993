"""Normalizations with constant statistics."""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op, Value

from ..batch_norms.affine import affine_of
from .builder import Builder, Writer

_TABLE = 2  # dimensions of samples by channels


def batch_norm(op: Op) -> Writer | None:
    """A convolution of each channel by itself, whose one weight is the scale and whose bias is the shift."""
    data, affine = op.graph.op_inputs(op)[0], affine_of(op.graph, op)
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


def _with_position(build: Builder, data: Value, shape: tuple[int | str | None, ...]) -> Value:
    """Samples by channels, with one position more; a 0 keeps the length that a dimension has."""
    kept = build.constant(np.array([0, 0, 1], np.int64), "shape")
    return build.op("Reshape", data, kept, shape=shape)
