"""Quantize and dequantize plain arrays: the numpy definition that every kernel must equal bit for bit.

Integer formats follow ONNX QuantizeLinear and DequantizeLinear: ``q = clip(round(x / scale) + zero_point)``
and ``x' = (q - zero_point) * scale`` in float32; a shifted grid lies half a step higher. NaN becomes the
lowest code. Float formats round to the nearest even value of the type, saturating for the 8-bit ones, after
division by the scale.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from ..errors import UsageError
from .formats import FloatFormat
from .spec import Encoding, Granularity, PerBlock, PerChannel, Quantizer

_INEXACT = 24  # bits from which on float32 does not hold every code


class Rounding(enum.Enum):
    """How ties are rounded: to the even neighbour (ONNX), away from zero, or up as in AIMET's simulation.

    AIMET 2.42 takes the lowest code away from ``x / scale`` before it rounds, in float32: ties go up, and
    what is so close to a tie that the difference rounds to one goes up with them.
    """

    HALF_EVEN = "half-even"
    HALF_AWAY = "half-away"
    HALF_UP = "half-up"


def spread(parameter: np.ndarray, encoding: Encoding, shape: tuple[int, ...]) -> np.ndarray:
    """Broadcasts a scale or zero point of ``encoding`` so that it lines up with a tensor of ``shape``.

    Raises:
        UsageError: the granularity does not fit the shape.
    """
    granularity = encoding.spec.granularity
    if isinstance(granularity, PerChannel):
        axis = _checked_axis(granularity.axis, shape)
        if parameter.shape != (shape[axis],):
            raise UsageError(f"{parameter.shape} channel scales do not fit axis {axis} of a {shape} tensor")
        return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    if isinstance(granularity, PerBlock):
        axis = _checked_axis(granularity.axis, shape)
        expected = tuple(-(-n // granularity.size) if i == axis else n for i, n in enumerate(shape))
        if parameter.shape != expected:
            raise UsageError(
                f"{parameter.shape} block scales do not fit a {shape} tensor ({expected} expected)"
            )
        return np.repeat(parameter, granularity.size, axis)[tuple(slice(0, n) for n in shape)]
    return parameter


def reduce_groups(
    x: np.ndarray, granularity: Granularity, reduction: Callable[..., np.ndarray]
) -> np.ndarray:
    """Reduces ``x`` to one number per scale of ``granularity``, in the shape an encoding has.

    Args:
        reduction: a numpy reduction that takes ``axis``, such as ``np.max``.
    """
    if isinstance(granularity, PerChannel):
        axis = _checked_axis(granularity.axis, x.shape)
        return np.asarray(reduction(x, axis=tuple(i for i in range(x.ndim) if i != axis)))
    if isinstance(granularity, PerBlock):
        axis = _checked_axis(granularity.axis, x.shape)
        count = x.shape[axis] // granularity.size
        whole, rest = np.split(x, [count * granularity.size], axis)
        blocks = whole.reshape(*x.shape[:axis], count, granularity.size, *x.shape[axis + 1 :])
        found = np.asarray(reduction(blocks, axis=axis + 1))
        if not rest.shape[axis]:
            return found
        return np.concatenate([found, np.expand_dims(reduction(rest, axis=axis), axis)], axis)
    return np.asarray(reduction(x, axis=None))


def _checked_axis(axis: int, shape: tuple[int, ...]) -> int:
    if not -len(shape) <= axis < len(shape):
        raise UsageError(f"axis {axis} is outside a tensor of rank {len(shape)}")
    return axis % len(shape)


def round_ties(x: np.ndarray, rounding: Rounding, lowest: np.ndarray | float = 0.0) -> np.ndarray:
    """Rounds float32 values to integers.

    Args:
        lowest: a whole number that is nowhere above ``x``: where ``Rounding.HALF_UP`` counts from.
    """
    if rounding is Rounding.HALF_EVEN:
        return np.rint(x)
    if rounding is Rounding.HALF_UP:
        above = x - np.asarray(lowest, x.dtype)
        whole = np.floor(above)
        return whole + (above - whole >= 0.5) + np.asarray(lowest, x.dtype)
    assert rounding is Rounding.HALF_AWAY
    whole = np.trunc(x)
    return whole + np.where(
        np.abs(x - whole) >= np.float32(0.5), np.copysign(np.float32(1), x), np.float32(0)
    )


@np.errstate(over="ignore", invalid="ignore")
def quantize(x: np.ndarray, encoding: Encoding, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    """Codes of ``x``: int32 for integer formats, an array of the small float type otherwise."""
    x = np.asarray(x).astype(np.float32, copy=False)
    scale = spread(encoding.scale, encoding, x.shape)
    spec = encoding.spec
    if isinstance(spec.format, FloatFormat):
        return _to_float(x / scale if spec.format.scaled else x, spec.format)
    wide = np.dtype(np.float64 if spec.format.bits >= _INEXACT else np.float32)
    x, scale = x.astype(wide, copy=False), scale.astype(wide, copy=False)
    zero_point = spread(encoding.zero_point, encoding, x.shape).astype(wide)
    lowest, highest = (np.asarray(limit, wide) - zero_point for limit in spec.code_range)
    y = np.asarray(x / scale)  # from here on in place: weights are large
    if spec.shifted:
        y -= spec.shift
    np.clip(y, lowest, highest, out=y)
    np.copyto(y, lowest, where=np.isnan(y))
    y = np.asarray(round_ties(y, rounding, lowest))
    y += zero_point
    return y.astype(np.int32)


def _to_float(x: np.ndarray, format: FloatFormat) -> np.ndarray:
    if format.scaled:
        x = np.clip(x, -format.highest, format.highest)
    return x.astype(format.dtype)


@np.errstate(over="ignore", invalid="ignore")
def dequantize(codes: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The float32 values that ``codes`` (as returned by :func:`quantize`) stand for."""
    codes = np.asarray(codes)
    scale = spread(encoding.scale, encoding, codes.shape)
    if isinstance(encoding.spec.format, FloatFormat):
        values = codes.astype(np.float32)
        return values * scale if encoding.spec.format.scaled else values
    zero_point = spread(encoding.zero_point, encoding, codes.shape)
    steps = np.subtract(codes, zero_point, dtype=np.int32, casting="unsafe").astype(np.float32)
    if encoding.spec.shifted:
        steps += np.float32(encoding.spec.shift)
    steps *= scale  # in place, as in quantize
    return steps


def fake_quantize(x: np.ndarray, encoding: Encoding, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    """Quantizes and dequantizes: ``x`` rounded to the grid of ``encoding``; float32."""
    return dequantize(quantize(x, encoding, rounding), encoding)


def codes_of(x: np.ndarray, quantizer: Quantizer, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    """The codes of a constant: those that were chosen for it, or else those of :func:`quantize`."""
    assert quantizer.encoding is not None
    return quantize(x, quantizer.encoding, rounding) if quantizer.codes is None else quantizer.codes


def rounded(x: np.ndarray, quantizer: Quantizer, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    """The float32 values that the codes of a constant stand for."""
    assert quantizer.encoding is not None
    return dequantize(codes_of(x, quantizer, rounding), quantizer.encoding)
