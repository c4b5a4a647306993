"""Scales for which ranges of weights are balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Sweeps end when no scale changes by more than this any more, a power of two.
_SETTLED = 0.01
_SWEEPS = 100
# How much of the way to balance a scale goes in a sweep: its neighbours move at the same time.
_STRIDE = 2 / 3
# What share of the range of a weight that of a channel counts as, at least: what is smaller is lost among
# the others anyway, and its bias would become larger than all other results.
_LEAST_SHARE = 2.0**-8


@dataclass(frozen=True)
class Weight:
    """The largest magnitude for each two channels of a layer, and which scales these have.

    Attributes:
        magnitudes: not negative; float32, shape ``(groups, outputs, inputs)``.
        inputs: the index of the scale that columns are multiplied by; shape ``(groups, inputs)``.
        outputs: the index of the scale that rows are divided by; shape ``(groups, outputs)``.
    """

    magnitudes: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray

    def ranges(self, powers: np.ndarray, of_outputs: bool) -> np.ndarray:
        """The largest magnitude with each scale; zero for those that it has not.

        Args:
            powers: the scales, as powers of two; shape ``(scales,)``.
            of_outputs: the scales of rows, not of columns.
        """
        rows, columns = np.exp2(-powers[self.outputs]), np.exp2(powers[self.inputs])
        if of_outputs:
            largest = (self.magnitudes * _beside(columns, 1)).max(axis=2) * rows
        else:
            largest = (self.magnitudes * _beside(rows, 2)).max(axis=1) * columns
        found = np.zeros(powers.size)
        np.maximum.at(found, self.outputs if of_outputs else self.inputs, largest)
        return found


def _beside(factors: np.ndarray, axis: int) -> np.ndarray:
    return np.expand_dims(factors.astype(np.float32), axis)


def balanced(weights: Sequence[Weight], free: np.ndarray) -> np.ndarray:
    """The scales for which the range of each channel is the same where it is made and where it is read.

    With ``r1`` the range of a row of the weight that makes a channel, ``r2`` that of the column of the one
    that reads it, the scale is the square root of ``r1 / r2`` (M. Nagel et al., Data-Free Quantization
    Through Weight Equalization and Bias Correction, 2019, section 4.1). What several make, or read, has the
    geometric mean of their ranges. Scales change the ranges that other scales rest on, so this is repeated
    until none changes.

    Args:
        weights: those of all layers with such a scale.
        free: which scales may be other than 1; bool, shape ``(scales,)``.

    Returns:
        The scales, as powers of two; float64, shape ``(scales,)``. Those of channels that nothing makes, or
        nothing reads, are 1.
    """
    powers = np.zeros(free.size)
    for _ in range(_SWEEPS):
        made, read = (_mean_logarithm(weights, powers, of_outputs) for of_outputs in (True, False))
        step = np.where(free, np.nan_to_num(_STRIDE * (made - read) / 2), 0.0)
        powers += step
        if np.abs(step).max(initial=0.0) < _SETTLED:
            break
    return powers


def _mean_logarithm(weights: Sequence[Weight], powers: np.ndarray, of_outputs: bool) -> np.ndarray:
    """Over the weights that have a scale, of the logarithms of their ranges; NaN if none has a range."""
    total, count = np.zeros(powers.size), np.zeros(powers.size)
    for weight in weights:
        ranges = weight.ranges(powers, of_outputs)
        found = ranges > 0
        total[found] += np.log2(np.maximum(ranges[found], _LEAST_SHARE * ranges.max()))
        count[found] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count)
