"""Ranges by entropy: the clipping that changes the distribution least (S. Migacz, GTC 2017)."""

from __future__ import annotations

import numpy as np

from qc.ir.executor import Statistics

BINS = 2048
LEVELS = 128
_SMALLEST_SHARE = 1e-9


def entropy_range(statistics: Statistics, coverage: float = 0.999) -> tuple[float, float]:
    """The range, cut to the same magnitude at both ends, with the least :func:`divergence`.

    Args:
        coverage: share of the values that the range covers at least. Without it, the method cuts smooth
            distributions far too short, since any short piece of them looks alike in few levels.
    """
    low, high = float(statistics.minimum), float(statistics.maximum)
    reach = max(-low, high)
    shares = magnitudes(statistics)
    if not reach > 0 or not shares.size:
        return low, high
    covered = np.cumsum(shares)
    shortest = max(LEVELS, int(np.searchsorted(covered, coverage)) + 1)
    lengths = range(min(shortest, BINS), BINS + 1)
    best = min(lengths, key=lambda length: divergence(shares, length))
    cut = reach * best / BINS
    return max(low, -cut), min(high, cut)


def magnitudes(statistics: Statistics) -> np.ndarray:
    """Shares of the magnitudes in 2048 bins from 0 to the largest; float64, empty if nothing was seen.

    Values count as spread evenly within a bin of the histogram.
    """
    edges, counts = statistics.histogram()
    if not counts.size:
        return np.zeros(0)
    below = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    borders = np.linspace(0.0, max(-edges[0], edges[-1]), BINS + 1)
    inside = np.interp(borders, edges, below) - np.interp(-borders, edges, below)
    inside[-1] = 1.0
    inside[0] = 0.0  # what is exactly zero belongs to the first bin
    return np.diff(inside)


def divergence(shares: np.ndarray, length: int) -> float:
    """The Kullback-Leibler divergence of magnitudes clipped to ``length`` bins from those in 128 levels.

    What is clipped counts in the last bin. The share of a level is spread over its bins that are not empty.
    """
    clipped = shares[:length].copy()
    level = np.arange(length) * LEVELS // length
    used = clipped > 0
    sums = np.bincount(level, clipped, LEVELS)
    spread = np.where(used, (sums / np.maximum(np.bincount(level, used, LEVELS), 1))[level], 0.0)
    clipped[-1] += shares[length:].sum()
    spread = np.maximum(spread / max(spread.sum(), _SMALLEST_SHARE), _SMALLEST_SHARE)
    present = clipped > 0
    return float(np.sum(clipped[present] * np.log(clipped[present] / spread[present])))
