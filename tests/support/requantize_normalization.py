"""How a device makes codes of softmax and normalizations: the numpy definition that the kernels must equal.

As in ``requantize.py`` it is Qualcomm's HTP, found by offering models of one op to its emulator.
"""

from __future__ import annotations

import numpy as np

from qc.ir.quant.spec import Encoding

from .polynomials import FRACTION_BITS, RESULT_BITS, power_of_two, reciprocal
from .requantize import on_grid, round_half_up, steps_of

# Rows of so many numbers are computed otherwise than shorter ones: what distances are multiplied by has
# few bits then.
_LONG, _FEW_BITS, _MANY_BITS = 17, 8, 15
_MOST_HALVINGS = 31
# What one is in units of the polynomials, and the bits that a share of a short row has behind the point where
# the sum of the row is one.
_ONE, _SHARE_BITS = 1 << RESULT_BITS, 5
# Rows of two numbers are a table of shares in 255ths. They are the result where its scale is a 255th but
# for this; to any other grid they are moved as codes with a scale of 1/256 are.
_PAIR, _PAIR_LEVELS, _SAME_SCALE = 2, 255, 1 / 850
_FACTOR_BITS, _MOVED_UNIT = 15, 64
# The mean of codes is in units of 1/64, what a row is multiplied by in units of 2^-16.
_MEAN_UNIT, _RATE_UNIT = 64, 1 << 16
# The bits of a first guess at an inverse square root, less half of those of the number (C. Lomont, Fast
# inverse square root, 2003), and how often it is mended.
_GUESS, _STEPS = 0x5F375A86, 2


def requantize_softmax(x: np.ndarray, grid: Encoding, encoding: Encoding, axis: int = -1) -> np.ndarray:
    """The softmax of a tensor on a grid, as a device finds it.

    Powers of two of 15 bits are found for the distances to the largest code; what each is of their sum is
    rounded, ties go up. Rows of 16 numbers or fewer have a coarser division, and those of two a table.

    Args:
        x: float32, numbers of ``grid``, which has one scale.
        encoding: the grid of the result; an integer format with a zero point of 0, which the device takes
            it to be, and one scale, of 1/256 or more.
        axis: along which the results sum up to one.

    Returns:
        float32, of the shape of ``x``.
    """
    codes = steps_of(x, grid)
    known = ~np.isnan(codes).any(axis, keepdims=True)
    made = _softmax(np.where(known, codes, 0), np.float32(grid.scale), encoding, axis)
    return on_grid(np.where(known, made, np.nan), encoding)


def _softmax(codes: np.ndarray, scale: np.float32, encoding: Encoding, axis: int) -> np.ndarray:
    """The codes of a softmax, from those of its tensor less their zero point."""
    levels = np.float64(np.float32(1) / np.float32(encoding.scale))
    if codes.shape[axis] == _PAIR:
        return _pairs(codes, np.float64(scale), levels, axis)
    mantissa, exponent = np.frexp(scale / np.float32(np.log(2)))
    is_long = codes.shape[axis] >= _LONG
    bits = _FEW_BITS if is_long else _MANY_BITS
    factor = np.floor(np.ldexp(np.float64(mantissa), bits) + (0 if is_long else 0.5))
    distance = (codes.max(axis, keepdims=True) - codes) * factor
    position = np.floor(np.ldexp(distance, int(exponent) - bits + FRACTION_BITS))
    position = np.minimum(position, _MOST_HALVINGS << FRACTION_BITS).astype(np.int64)
    power = power_of_two(~position & ((1 << FRACTION_BITS) - 1))
    halvings = position >> FRACTION_BITS
    if is_long:
        power >>= halvings
        return round_half_up(power * levels / power.sum(axis, keepdims=True))
    return _shares(np.ldexp(power.astype(np.float64), -halvings), levels, axis)


def _pairs(codes: np.ndarray, scale: np.float64, levels: np.float64, axis: int) -> np.ndarray:
    """Codes of rows of two numbers, the second of which is the larger one where they are equal."""
    first, second = np.split(codes, _PAIR, axis)
    larger = round_half_up(_PAIR_LEVELS / (1 + np.exp(-np.abs(first - second) * scale)))
    share = np.where(first > second, larger, _PAIR_LEVELS - larger)
    shares = np.concatenate([share, _PAIR_LEVELS - share], axis)
    if abs(_PAIR_LEVELS / levels - 1) < _SAME_SCALE:
        return shares
    mantissa, exponent = np.frexp(levels / 256)
    factor = np.ldexp(round_half_up(np.ldexp(mantissa, _FACTOR_BITS)), exponent - _FACTOR_BITS)
    return round_half_up(round_half_up(shares * factor * _MOVED_UNIT) / _MOVED_UNIT)


def _shares(power: np.ndarray, levels: np.float64, axis: int) -> np.ndarray:
    """Codes of short rows: powers are multiplied by a reciprocal of their sum of 15 bits."""
    total = power.sum(axis, keepdims=True)
    doublings = np.frexp(total)[1] - RESULT_BITS
    of_total, _ = reciprocal(np.floor(np.ldexp(total, -doublings)))
    scaled = np.floor(np.minimum(of_total, _ONE - 1) * levels / 256)
    product = round_half_up(round_half_up(power) * scaled / (2 * _ONE))
    return round_half_up(np.ldexp(product, -_SHARE_BITS - doublings))


def requantize_normalization(
    x: np.ndarray,
    grid: Encoding,
    weight: np.ndarray,
    weight_scale: np.ndarray,
    bias: np.ndarray,
    encoding: Encoding,
    epsilon: float,
    centered: bool,
) -> np.ndarray:
    """The normalization of the last dimension of a tensor on a grid, as a device finds it.

    Centered (LayerNormalization), the mean of the codes is cut to 6 bits behind the point, the row is
    multiplied by a whole number, which is cut as well, the bias is rounded to steps of the result, and ties
    go up. Otherwise (RMSNormalization) the exact code is rounded to float16, and what is behind the point is
    cut off.

    Args:
        x: float32, numbers of ``grid``, which has one scale.
        weight, bias: float32; ``weight`` is on a grid with ``weight_scale``, one number. They broadcast with
            ``x``.
        encoding: the grid of the result; an integer format with one scale for the tensor.

    Returns:
        float32, of the shape of ``x``.
    """
    scale, zero_point = np.float64(encoding.scale), np.float64(encoding.zero_point)
    codes = steps_of(x, grid)
    of_weight = np.rint(weight.astype(np.float64) / np.float64(weight_scale))
    count, total = float(x.shape[-1]), codes.sum(-1, keepdims=True)
    squares = (codes * codes).sum(-1, keepdims=True)
    variance = (count * squares - total * total) / (count * count) if centered else squares / count
    variance = variance + np.float64(np.float32(epsilon)) / np.float64(grid.scale) ** 2
    ratio = np.float64(weight_scale) / scale
    if not centered:
        exact = codes * (ratio / np.sqrt(variance)) * of_weight + zero_point
        with np.errstate(over="ignore"):
            return on_grid(np.floor(exact.astype(np.float32).astype(np.float16).astype(np.float64)), encoding)
    moved = codes - np.floor(total * _MEAN_UNIT / count) / _MEAN_UNIT
    rate = np.floor(_RATE_UNIT * ratio * _inverse_root(variance.astype(np.float32)))
    scaled = moved * rate * of_weight / _RATE_UNIT
    return on_grid(round_half_up(scaled + np.rint(bias.astype(np.float64) / scale) + zero_point), encoding)


def _inverse_root(x: np.ndarray) -> np.ndarray:
    """1 / sqrt(x) of float32, at most 5 millionths too small."""
    guess = (np.int32(_GUESS) - (x.view(np.int32) >> 1)).view(np.float32)
    for _ in range(_STEPS):
        guess = guess * (np.float32(1.5) - np.float32(0.5) * x * guess * guess)
    return guess.astype(np.float64)
