"""Rotary embedding as products, by the ONNX operator specification."""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape

from .builder import Builder, Writer


def rotary_embedding(op: Op) -> Writer | None:
    """``x1 cos - x2 sin`` and ``x1 sin + x2 cos`` of both halves of a head, in front of what is not turned.

    Heads that are not an axis of their own, and pairs that lie side by side, are not known.
    """
    x, cos, sin, places = [*op.inputs, None][:4]
    return _turned(op, x, cos, sin, places)


def fused_rotary_embedding(op: Op) -> Writer | None:
    """The one of ONNX Runtime's own domain, which always reads places, and has some more attributes."""
    x, places, cos, sin = op.inputs
    is_other = op.attribute("scale", 1.0) != 1 or op.attribute("is_packed_batching", 0)
    of_each = places is not None and places.type.rank == 2
    return _turned(op, x, cos, sin, places) if of_each and not is_other else None


def _turned(
    op: Op, x: Value | None, cos: Value | None, sin: Value | None, places: Value | None
) -> Writer | None:
    shape = x.type.shape if x is not None else None
    if x is None or cos is None or sin is None or shape is None or len(shape) != 4:
        return None
    width = shape[-1]
    turned = op.attribute("rotary_embedding_dim", 0) or width
    if not isinstance(width, int) or not isinstance(turned, int) or op.attribute("interleaved", 0):
        return None
    angles = (shape[0], 1, shape[2], turned // 2)

    def write(build: Builder) -> list[Value | None]:
        c, s = (_at_places(build, table, places, angles) for table in (cos, sin))
        return [turn(build, x, c, s, turned)]

    return write


def turn(build: Builder, x: Value, cos: Value, sin: Value, turned: int) -> Value:
    """Heads of which the first ``turned`` numbers are turned, by tables for all their places."""
    shape = x.type.shape or ()
    rest = shape[-1] - turned  # type: ignore[operator]
    first, second, *others = build.slices(x, [turned // 2] * 2 + ([rest] if rest else []), axis=3)
    half = first.type.shape

    def product(left: Value, right: Value) -> Value:
        return build.op("Mul", left, right, shape=half)

    real = build.op("Sub", product(first, cos), product(second, sin), shape=half)
    imaginary = build.op("Add", product(first, sin), product(second, cos), shape=half)
    return build.op("Concat", real, imaginary, *others, shape=shape, axis=-1)


def _at_places(build: Builder, table: Value, places: Value | None, shape: Shape) -> Value:
    """The numbers of a table for each place, alike for all heads."""
    batch, _, length, width = shape
    if places is not None:
        table = build.op("Gather", table, places, shape=(batch, length, width), axis=0)
    return build.op("Unsqueeze", table, build.constant(np.array([1], np.int64), "heads"), shape=shape)
