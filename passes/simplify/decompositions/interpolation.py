"""A Resize that interpolates, as a product by what each number of an axis adds to each of the result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of
from .resizing import COORDINATES, exact_places, nearest, scales_of

_CUBIC = -0.75  # the usual coefficient
_OFF = 1e-3  # by how much of a number a scale may miss the length of the result
# Where the first number lies follows from the scale.
_BY_SCALE = ("asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")


def resized(op: Op) -> Writer | None:
    """A Resize as the HTP computes it rightly; None if it does as it is, or if no such form is known."""
    if op.graph.model.opset < COORDINATES:
        return None
    return nearest(op) if op.attribute("mode", "nearest") == "nearest" else _interpolated(op)


def _interpolated(op: Op) -> Writer | None:
    """A linear or cubic Resize as products.

    The HTP takes the ratio of lengths for the scale, which is another one where a length is no whole number,
    and has neither ``antialias`` nor ``exclude_outside``, coefficients of its own, or symmetric halves.
    """
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None:
        return None
    scales = scales_of(op, lengths, wanted)
    if scales is None or not (_is_special(op) or _is_off(op, lengths, wanted, scales)):
        return None
    matrices = {
        axis: _matrix(op, *of_axis)
        for axis, of_axis in enumerate(zip(lengths, wanted, scales, strict=True))
        if of_axis[0] != of_axis[1] or of_axis[2] != 1
    }
    known = {axis: matrix for axis, matrix in matrices.items() if matrix is not None}
    if not known or len(known) < len(matrices):
        return None
    return lambda build: [_multiplied(build, data, known)]


def _is_special(op: Op) -> bool:
    mode = op.attribute("coordinate_transformation_mode", "half_pixel")
    is_cubic = op.attribute("mode", "nearest") == "cubic"
    has_own = is_cubic and op.attribute("cubic_coeff_a", _CUBIC) != _CUBIC
    has_flag = any(op.attribute(name, 0) for name in ("antialias", "exclude_outside"))
    return has_own or has_flag or mode == "half_pixel_symmetric"


def _is_off(op: Op, lengths: Lengths, wanted: Lengths, scales: np.ndarray) -> bool:
    """Whether a scale is another one than the ratio of lengths, where that counts."""
    mode = op.attribute("coordinate_transformation_mode", "half_pixel")
    is_cubic = op.attribute("mode", "nearest") == "cubic"
    missed = np.abs(np.array(lengths) * scales - np.array(wanted)).max()
    return bool(missed > _OFF) and (is_cubic or mode in _BY_SCALE)


def _matrix(op: Op, length: int, wanted: int, scale: np.float32) -> np.ndarray | None:
    """What each number of an axis adds to each of the result, float32 of (length, wanted)."""
    places = exact_places(op, length, wanted, scale)
    if places is None:
        return None
    kernel: Callable[[np.ndarray], np.ndarray] = _linear
    if op.attribute("mode", "nearest") == "cubic":
        kernel = partial(_cubic, coefficient=op.attribute("cubic_coeff_a", _CUBIC))
    stretch = min(float(scale), 1.0) if op.attribute("antialias", 0) else 1.0
    reach = int(np.ceil(2 / stretch)) + 1
    neighbors = np.floor(places)[:, None].astype(np.int64) + np.arange(-reach, reach + 1)
    weights = kernel((neighbors - places[:, None]) * stretch)
    if op.attribute("exclude_outside", 0):
        weights = np.where((neighbors >= 0) & (neighbors < length), weights, 0)
    weights /= weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((length, wanted))
    results = np.broadcast_to(np.arange(wanted)[:, None], neighbors.shape)
    np.add.at(matrix, (np.clip(neighbors, 0, length - 1), results), weights)
    return matrix.astype(np.float32)


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


def _cubic(distance: np.ndarray, coefficient: float) -> np.ndarray:
    """The kernel of R. Keys: Cubic Convolution Interpolation for Digital Image Processing, 1981."""
    x, a = np.abs(distance), coefficient
    inner = ((a + 2) * x - (a + 3)) * x**2 + 1
    outer = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0))


def _multiplied(build: Builder, data: Value, matrices: dict[int, np.ndarray]) -> Value:
    """Data times a matrix along each axis, which is the last one for that."""
    shape = lengths_of(data) or ()
    last = len(shape) - 1
    for axis, matrix in matrices.items():
        order = list(range(len(shape)))
        order[axis], order[last] = last, axis
        turned = tuple(shape[place] for place in order)
        shape = (*shape[:axis], matrix.shape[1], *shape[axis + 1 :])
        if axis != last:
            data = build.op("Transpose", data, shape=turned, perm=order)
        data = build.op(
            "MatMul", data, build.constant(matrix, "weights"), shape=(*turned[:-1], matrix.shape[1])
        )
        if axis != last:
            data = build.op("Transpose", data, shape=shape, perm=order)
    return data
