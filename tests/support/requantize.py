"""How a device makes codes of what it computed in integers: the numpy definition that the kernels must equal.

An accelerator multiplies what it accumulated by a number of few bits instead of dividing by the scale, so
that its codes differ from those of exact arithmetic, mostly by one step near ties. The kinds of arithmetic
here are those of Qualcomm's HTP, found by offering models of one op to its emulator
(``benches/device_arithmetic.py``).

Scales are finite. NaN gives the lowest code; so does infinity where several numbers are combined, and the end
of the grid where there is one.
"""

from __future__ import annotations

import numpy as np

from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Encoding

from .polynomials import RESULT_BITS, reciprocal

_VECTOR_BITS, _MATRIX_BITS, _SUM_BITS = 15, 11, 13
# The matrix unit keeps so many of the bits of a sum that are worth less than a code, or more by one.
_KEPT_BITS = 4
# The constant term of a sum of two tensors is a multiple of this.
_SUM_UNIT = 256
# A product of two codes is moved by a multiple of this, and the constant behind it has so many bits.
_PRODUCT_UNIT, _CONSTANT_BITS = 256, 15
# What is moved to another grid has so many bits behind the point on the way, fewer where 16 do not hold it.
_MOVED_BITS = 6
# Behind a slope it has one more, but not more than that where numbers become smaller.
_SLOPED_BITS = 7
# The multiplier of a sum along an axis is in units of this below its power of two.
_REDUCED_UNIT = (1 << 15) - 1
# The scale that a column of codes is divided by has so many bits behind the point, and its reciprocal.
_COLUMN_BITS, _RECIPROCAL_BITS = 11, 16
# A quotient by zero is zero where the exponents of the dividend (its length in two's complement) and of the
# ratio of the scales add up to less than this, else the end of the grid. That changes where their product is
# from a 32nd to a 16th of a code.
_LEAST_BY_ZERO = -3
# Codes of uint8 differ from a zero point by no more.
_MOST_STEPS = 255


def requantize(
    x: np.ndarray,
    input_scale: np.ndarray,
    weight_scale: np.ndarray,
    encoding: Encoding,
    arithmetic: Arithmetic,
) -> np.ndarray:
    """The nearest numbers to ``x`` on a grid of one scale, as a device finds them.

    Args:
        x: float32, sums of products as real numbers: whole multiples of ``input_scale * weight_scale`` but
            for rounding in float32.
        input_scale: float32, one number.
        weight_scale: float32, one number or one for each channel or place; it broadcasts with ``x``. Where it
            is 0, ``x`` stays as it is.
        encoding: the grid; an integer format with one scale for the tensor.
        arithmetic: how codes are made.

    Returns:
        float32, of the shape of ``x``.
    """
    off = weight_scale == 0
    weight_scale = np.where(off, weight_scale.max() or np.float32(1), weight_scale)
    step = np.float64(input_scale) * weight_scale.astype(np.float64)
    codes = _codes(np.rint(x / step), _multiplier(input_scale, weight_scale, encoding), encoding, arithmetic)
    return np.where(off, x, on_grid(codes, encoding))


def _codes(
    accumulated: np.ndarray, multiplier: np.ndarray, encoding: Encoding, arithmetic: Arithmetic
) -> np.ndarray:
    few, zero_point = _few(multiplier, arithmetic), encoding.zero_point.astype(np.float32)
    exponent = np.frexp(few)[1]
    if arithmetic is Arithmetic.MOVED:
        bits = _MOVED_BITS - np.maximum(exponent - 1, 0)
        return round_half_up(np.ldexp(round_half_up(accumulated * np.ldexp(few, bits)), -bits)) + zero_point
    if arithmetic in (Arithmetic.CODES, Arithmetic.REDUCED):
        return round_half_up(accumulated * few) + zero_point
    if arithmetic is Arithmetic.HALVES:
        largest = np.frexp(few.max())[1]
        lift = np.ldexp(1 / 16, largest) if largest < 0 else 0
        return round_half_up(accumulated * few + lift) + zero_point
    accumulated = accumulated + np.floor(zero_point / multiplier + np.float32(0.5))
    if arithmetic is Arithmetic.VECTOR:
        return round_half_up(accumulated * few)
    unit = np.exp2(np.maximum(1 - _KEPT_BITS - exponent, 0))
    return round_half_up(np.floor(accumulated / unit) * unit * few)


def _few(multiplier: np.ndarray, arithmetic: Arithmetic) -> np.ndarray:
    """What a device multiplies by instead."""
    if arithmetic is Arithmetic.HALVES:
        largest = _of_bits(multiplier.max().astype(np.float64), _VECTOR_BITS)
        unit = np.exp2(np.frexp(largest)[1] - _VECTOR_BITS)
        shares = (multiplier / multiplier.max()).astype(np.float64)
        return np.asarray(round_half_up(largest / unit * shares) * unit)
    multiplier = multiplier.astype(np.float64)
    if arithmetic is Arithmetic.REDUCED:
        mantissa, exponent = np.frexp(multiplier)
        return np.asarray(np.ldexp(round_half_up(mantissa * _REDUCED_UNIT), exponent - _VECTOR_BITS))
    return _of_bits(multiplier, _MATRIX_BITS if arithmetic is Arithmetic.MATRIX else _VECTOR_BITS)


def _multiplier(input_scale: np.ndarray, weight_scale: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Codes of the result for one accumulated step, float32: for the largest scale, times its shares."""
    largest = weight_scale.max()
    return np.asarray((input_scale * largest / encoding.scale) * (weight_scale / largest))


def requantize_sum(
    a: np.ndarray, b: np.ndarray, grids: tuple[Encoding, Encoding], encoding: Encoding, sign: int
) -> np.ndarray:
    """The sum of two tensors, or with ``sign`` -1 their difference, on a grid, as a device finds it.

    Both codes are multiplied by whole numbers, which have 13 bits for the sum of the two (for a difference
    for the larger one); a constant in units of 256 is added, ties go up.

    Args:
        a, b: float32, numbers of the two ``grids``, which have one scale each; they broadcast.
        encoding: the grid of the result; an integer format with one scale for the tensor.
    """
    scale, zero_point = np.float64(encoding.scale), np.float64(encoding.zero_point)
    ratios = [np.float64(grid.scale) / scale for grid in grids]
    shift = _SUM_BITS - int(np.frexp(ratios[0] + ratios[1] if sign > 0 else max(ratios))[1]) + 1
    whole = np.rint(np.ldexp(ratios, shift)) * (1, sign)
    zeros = [np.float64(grid.zero_point) for grid in grids]
    constant = np.ldexp(zero_point, shift) - whole[0] * zeros[0] - whole[1] * zeros[1]
    total = _SUM_UNIT * np.rint(constant / _SUM_UNIT)
    for x, grid, factor, zero in zip((a, b), grids, whole, zeros, strict=True):
        total = total + (steps_of(x, grid) + zero) * factor
    return on_grid(round_half_up(np.ldexp(total, -shift)), encoding)


def requantize_product(
    a: np.ndarray, b: np.ndarray, grids: tuple[Encoding, Encoding], encoding: Encoding
) -> np.ndarray:
    """The product of two tensors on a grid, as a device finds it.

    The product of the codes less their zero points is moved towards 0 by a multiple of 256 and multiplied by
    a number of 15 bits; a constant of 16 bits undoes the move and adds the zero point, ties go up. Where the
    constant would not fit, the number has fewer bits. Found for numbers of at least 1/256; for smaller ones a
    few codes of a device differ by one.

    Args:
        a, b: float32, numbers of the two ``grids``, of uint8, which have one scale each; they broadcast.
        encoding: the grid of the result; an integer format with one scale for the tensor.
    """
    exact = np.float64(grids[0].scale / encoding.scale * grids[1].scale)
    centers = [np.float64(grid.zero_point) - 127.5 for grid in grids]
    move = -_PRODUCT_UNIT * np.rint(centers[0] * centers[1] / 128)
    most = -int(np.frexp(exact)[1])
    for shift in range(most, most - _VECTOR_BITS, -1):
        factor = np.ldexp(np.rint(np.ldexp(exact, shift + _VECTOR_BITS)), -_VECTOR_BITS)
        constant = round_half_up(-move * factor) + np.ldexp(np.float64(encoding.zero_point) + 0.5, shift)
        if abs(constant) < 2**_CONSTANT_BITS:
            break
    steps = [steps_of(x, grid) for x, grid in zip((a, b), grids, strict=True)]
    return on_grid(np.floor(np.ldexp((steps[0] * steps[1] + move) * factor + constant, -shift)), encoding)


def requantize_quotient(
    a: np.ndarray, b: np.ndarray, grids: tuple[Encoding, Encoding], encoding: Encoding
) -> np.ndarray:
    """The quotient of two tensors on a grid, as a device finds it.

    A dividend, shifted left in 16 bits until its first bit differs from the sign, is multiplied by a number
    of 15 bits and rounded; so is its product with the reciprocal of the divisor, to 14 bits, and then
    to a code. All ties go up. Where the divisor is negative both change their signs first.

    Args:
        a, b: float32, numbers of the two ``grids``, of uint8, which have one scale each; they broadcast.
        encoding: the grid of the result; an integer format with one scale for the tensor.
    """
    steps, by = (steps_of(x, grid) for x, grid in zip((a, b), grids, strict=True))
    steps = np.where(by < 0, -steps, steps)
    known = ~np.isnan(steps + by)
    of_divisor, halvings = reciprocal(np.where(known & (by != 0), np.abs(by), 1))
    factor, exponent = np.frexp(np.float64(grids[0].scale / grids[1].scale / encoding.scale))
    length = np.frexp(np.abs(steps + 0.5) - 0.5)[1]  # in two's complement: of -4 it is 2
    exponent = exponent + length
    moved = _of_fraction(_of_fraction(factor, _VECTOR_BITS) * np.ldexp(steps, -length), _VECTOR_BITS)
    product = _of_fraction(moved * np.ldexp(of_divisor, -RESULT_BITS), RESULT_BITS - 1)
    codes = round_half_up(np.ldexp(product, exponent - halvings))
    end = np.where(exponent < _LEAST_BY_ZERO, 0, np.where(steps < 0, -np.inf, np.inf))
    codes = np.where(known, np.where(by == 0, end, codes), np.nan)
    return on_grid(codes + np.float64(encoding.zero_point), encoding)


def requantize_matmul(
    a: np.ndarray, b: np.ndarray, grids: tuple[Encoding, Encoding], encoding: Encoding
) -> np.ndarray:
    """The matrix product of two tensors on a grid, as a device finds it whose matrix unit has signed weights.

    Every column of ``b`` becomes codes of int8 by a scale of its own, which is 1 where its codes less their
    zero point fit. What is accumulated becomes codes as in ``Arithmetic.MATRIX``.

    Args:
        a, b: float32, numbers of the two ``grids``, of uint8, which have one scale each; of 2 dimensions or
            more, as MatMul of ONNX has them. More than 255 steps count as 255.
        encoding: the grid of the result; an integer format with one scale for the tensor.
    """
    rows, columns = (
        np.clip(steps_of(x, grid), -_MOST_STEPS, _MOST_STEPS) for x, grid in zip((a, b), grids, strict=True)
    )
    highest, lowest = columns.max(-2, keepdims=True), columns.min(-2, keepdims=True)
    scale = _of_fraction(np.maximum(np.maximum(highest / 127, lowest / -128), 1), _COLUMN_BITS)
    signed = np.clip(round_half_up(columns * _of_fraction(1 / scale, _RECIPROCAL_BITS)), -128, 127)
    multiplier = np.float32(grids[0].scale / encoding.scale * grids[1].scale) * scale.astype(np.float32)
    return on_grid(_codes(rows @ signed, multiplier, encoding, Arithmetic.MATRIX), encoding)


def requantize_prelu(x: np.ndarray, grid: Encoding, slope: np.ndarray, encoding: Encoding) -> np.ndarray:
    """A tensor on another grid, what is below 0 multiplied by a slope, as a device finds it.

    Slopes are whole numbers in units of the largest one, which has 15 bits. Their product with what brings
    codes to the other grid is cut to its units. What is multiplied is rounded to 7 bits behind the point, one
    less for every bit of the largest multiplier in front of it, and then to a code; ties go up both times.

    Args:
        x: float32, numbers of ``grid``, which has one scale.
        slope: float32, finite; it broadcasts with ``x``.
        encoding: the grid of the result; an integer format with one scale for the tensor.

    Returns:
        float32, of the shape of ``x``.
    """
    multiplier = np.float64(np.float32(grid.scale) / np.float32(encoding.scale))
    largest = np.float64(np.abs(slope).max())
    places = max(int(np.frexp(multiplier * max(largest, 1))[1]), 0)
    unit, step = np.ldexp(1.0, places - _VECTOR_BITS), np.ldexp(1.0, places - _SLOPED_BITS)
    fine = np.ldexp(1.0, int(np.frexp(largest)[1]) - _VECTOR_BITS)
    whole = round_half_up(multiplier / unit)
    cut = np.floor(round_half_up(slope.astype(np.float64) / fine) * fine * whole)
    steps = np.rint(x.astype(np.float64) / np.float64(grid.scale))
    moved = round_half_up(steps * np.where(steps < 0, cut, whole) * unit / step) * step
    return on_grid(round_half_up(moved) + np.float64(encoding.zero_point), encoding)


def quantize_in_float16(x: np.ndarray, encoding: Encoding, with_zero_point: bool = False) -> np.ndarray:
    """The nearest numbers to ``x`` on a grid of one scale, found in float16.

    ``x``, float32, is multiplied by the reciprocal of the scale, the product is rounded to float16, and ties
    go away from zero. With the zero point it is the exact code that is rounded to float16, and ties go up.
    """
    with np.errstate(over="ignore"):
        if with_zero_point:
            exact = x.astype(np.float64) / np.float64(encoding.scale) + np.float64(encoding.zero_point)
            return on_grid(round_half_up(_in_float16(exact)), encoding)
        scaled = _in_float16(x.astype(np.float32) * (np.float32(1) / encoding.scale.astype(np.float32)))
    return on_grid(np.trunc(scaled + np.copysign(0.5, scaled)) + encoding.zero_point, encoding)


def _in_float16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float16).astype(np.float64)


def _of_bits(multiplier: np.ndarray, bits: int) -> np.ndarray:
    """The nearest number whose mantissa has so many bits."""
    mantissa, exponent = np.frexp(multiplier)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits))


def _of_fraction(x: np.ndarray, bits: int) -> np.ndarray:
    """The nearest number with so many bits behind the point."""
    return np.asarray(np.ldexp(round_half_up(np.ldexp(x, bits)), -bits))


def steps_of(x: np.ndarray, grid: Encoding) -> np.ndarray:
    """Codes less the zero point, float64, of numbers of a grid; of infinity NaN, as it has none."""
    steps = np.rint(x.astype(np.float64) / np.float64(grid.scale))
    return np.where(np.isfinite(steps), steps, np.nan)


def round_half_up(x: np.ndarray) -> np.ndarray:
    """The nearest whole numbers; ties go up."""
    return np.floor(x + 0.5)


def on_grid(codes: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The float32 numbers that codes stand for, those beyond the format being cut; of NaN the lowest one."""
    lowest, highest = encoding.spec.code_range
    steps = np.minimum(np.fmax(codes, lowest), highest) - encoding.zero_point
    return steps.astype(np.float32) * encoding.scale
