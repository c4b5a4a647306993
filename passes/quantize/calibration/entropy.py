"""Ranges by entropy: the clipping that changes the distribution least (S. Migacz, GTC 2017)."""

from __future__ import annotations

import numpy as np

from qc.ir.executor import Statistics

BINS = 2048
LEVELS = 128
_SMALLEST_SHARE = 1e-9
# Share of the values that a range covers at least. Without it, the method cuts smooth distributions far too
# short, since any short piece of them looks alike in few levels.
_COVERAGE = 0.999


def entropy_range(statistics: Statistics) -> tuple[float, float]:
    """The range, cut to the same magnitude at both ends, with the least :func:`divergences`."""
    low, high = float(statistics.minimum), float(statistics.maximum)
    reach = max(-low, high)
    shares = magnitudes(statistics)
    if not reach > 0 or not shares.size:
        return low, high
    covered = np.cumsum(shares)
    shortest = max(LEVELS, int(np.searchsorted(covered, _COVERAGE)) + 1)
    lengths = np.arange(min(shortest, BINS), BINS + 1)
    cut = reach * float(lengths[np.argmin(divergences(shares, lengths))]) / BINS
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


def divergences(shares: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The Kullback-Leibler divergences of magnitudes clipped to some lengths from those in 128 levels.

    What is clipped counts in the last bin. The share of a level is spread over its bins that are not empty,
    so that sums over bins are differences of running sums.

    Args:
        shares: those of all bins.
        lengths: numbers of bins, each at least that of levels.

    Returns:
        float64, one for each length.
    """
    used = shares > 0
    terms = shares * np.log(shares, where=used, out=np.zeros_like(shares))
    covered, filled, entropy = (
        np.concatenate([[0.0], np.cumsum(numbers)]) for numbers in (shares, used, terms)
    )
    borders = -(-np.arange(LEVELS + 1) * lengths[:, None] // LEVELS)
    sums, counts = np.diff(covered[borders]), np.diff(filled[borders])
    inside = np.maximum(covered[lengths], _SMALLEST_SHARE)
    spread = np.log(np.maximum(sums / np.maximum(counts, 1) / inside[:, None], _SMALLEST_SHARE))
    clipped = covered[-1] - covered[lengths]
    of_last = np.where(used[lengths - 1], spread[:, -1], np.log(_SMALLEST_SHARE))
    last = shares[lengths - 1] + clipped
    of_bins = entropy[lengths - 1] + last * np.log(last, where=last > 0, out=np.zeros_like(last))
    return np.asarray(of_bins - np.sum(sums * spread, axis=1) - clipped * of_last)
