"""Masks: numbers so far below the others that Softmax gives them exactly 0, however far that is."""

from __future__ import annotations

import numpy as np

from qc.ir.executor import Statistics
from qc.ir.quant.spec import QuantSpec

# Softmax in float32 gives 0 to what lies 104 below the largest of a row; exp(-128) is 0 with room to spare.
_GAP = 128.0


def top_of_mask(statistics: Statistics) -> float | None:
    """The largest of the numbers that stand for a mask; None if there are none.

    These are all numbers below the widest gap in the histogram, if that is so wide that Softmax sees none of
    them next to any number above it, and if there are at least some above it.
    """
    edges, counts = statistics.histogram()
    full = np.flatnonzero(counts)
    if full.size < 2:
        return None
    below, above = edges[full[:-1] + 1], edges[full[1:]]
    widest = int(np.argmax(above - below))
    return float(below[widest]) if (above - below)[widest] >= _GAP and below[widest] < 0 else None


def lowest_with_mask(low: float, spec: QuantSpec, room: float = 0.0) -> float:
    """Where a range has to begin so that a mask may saturate there.

    Args:
        low: the smallest number that is not masked.
        spec: the grid of the scores.
        room: by how much the scores may differ that the mask is added to later.

    The distance is twice the bits of the grid: behind Softmax, ``2 ** bits`` saturated masks then add up to
    less than a step of a grid with so many bits.
    """
    return low - 2.0 * spec.format.bits - room


def masked_below(numbers: np.ndarray) -> float | None:
    """As :func:`top_of_mask`, of an array."""
    ordered = np.unique(numbers)
    gaps = np.diff(ordered)
    if not gaps.size or gaps.max() < _GAP or ordered[gaps.argmax()] >= 0:
        return None
    return float(ordered[gaps.argmax()])


def clipped_to_mask(array: np.ndarray, spec: QuantSpec) -> np.ndarray:
    """An array with its masked numbers raised to where the range of a grid begins."""
    mask = masked_below(array)
    if mask is None:
        return array
    return np.maximum(array, lowest_with_mask(float(array[array > mask].min()), spec))
