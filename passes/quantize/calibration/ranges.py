"""From statistics to ranges, and from ranges to encodings."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from qc.ir.errors import ModelError
from qc.ir.executor import Executor, Statistics
from qc.ir.graph import Value
from qc.ir.quant.arithmetic import reduce_groups
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, QuantSpec

# Ends of a range that are tried.
_STEPS = 48


def covering(spec: QuantSpec, low: float, high: float) -> Encoding:
    """The grid of ``spec`` that covers a range, but for an end that it fixes."""
    return encoding_of_range(spec, *map(np.asarray, with_fixed_ends(spec, low, high)))


def with_fixed_ends(spec: QuantSpec, low: float, high: float) -> tuple[float, float]:
    """A range, but for an end that the spec fixes; one that it leaves open is infinite there."""
    if spec.fixed_range is None:
        return low, high
    ends = zip(spec.fixed_range, (low, high), strict=True)
    low, high = (fixed if np.isfinite(fixed) else seen for fixed, seen in ends)
    return low, max(low, high)


def percentile_range(statistics: Statistics, percentile: float) -> tuple[float, float]:
    """The range that leaves out ``(100 - percentile) / 2`` percent of the values at either end.

    Values count as spread evenly within a bin of the histogram.
    """
    edges, counts = statistics.histogram()
    if not counts.size:
        return 0.0, 0.0
    share = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    tail = (100.0 - percentile) / 200.0
    low, high = np.interp([tail, 1.0 - tail], share, edges)
    return float(low), float(high)


def mse_range(
    statistics: Statistics, spec: QuantSpec, executor: Executor, clipping: float = 1.0
) -> tuple[float, float]:
    """The range whose grid has the least expected squared error on the histogram.

    Both ends are searched in turn over 48 fractions of the observed end, spaced geometrically from 1 to
    1/32, twice; the error of a candidate is integrated exactly for values spread evenly within bins.
    Errors of values outside the range count ``clipping`` times.
    """
    edges, counts = statistics.histogram()
    low, high = float(statistics.minimum), float(statistics.maximum)
    if not counts.size or not isinstance(spec.format, IntFormat):
        return low, high
    fractions = np.geomspace(1.0, 1.0 / 32.0, _STEPS)

    def best(bottom: np.ndarray | float, top: np.ndarray | float) -> float:
        """The fraction whose range has the least error; the largest of equals."""
        grids = encoding_of_range(spec, *np.broadcast_arrays(bottom, top))
        return float(fractions[np.argmin(executor.histogram_error(edges, counts, grids, clipping))])

    if spec.symmetric:
        fraction = best(low * fractions, high * fractions)
        return low * fraction, high * fraction

    # An end on the other side of zero changes no grid, and one that stayed is not searched for again.
    @cache
    def best_top(bottom: float) -> float:
        return high * best(bottom, high * fractions) if high > 0 else high

    @cache
    def best_bottom(top: float) -> float:
        return low * best(low * fractions, top) if low < 0 else low

    bottom = best_bottom(best_top(low))
    top = best_top(bottom)
    return best_bottom(top), top


def finite_data(value: Value) -> np.ndarray:
    """The data of a constant; raises ModelError if NaN or infinity is in it, which no grid has."""
    assert value.const is not None
    array = value.const.numpy()
    if not np.isfinite(array).all():
        reader = next((f", which {use.op.label} reads" for use in value.uses), "")
        raise ModelError(
            f"the constant '{value.name}' holds NaN or infinity{reader}; mend the model or skip that op"
        )
    return array


def weight_encoding(spec: QuantSpec, weight: np.ndarray) -> Encoding:
    """The encoding that covers a weight, a float array, per tensor, per channel or per block."""
    return encoding_of_range(spec, *_ends(spec, weight))


def mse_encoding(spec: QuantSpec, weight: np.ndarray, executor: Executor) -> Encoding:
    """The encoding of a weight: for every scale the fraction of its range with the least squared error.

    Args:
        spec: as for :func:`weight_encoding`; 32 bits and small floats cover the range.
    """
    low, high = _ends(spec, weight)
    best = encoding_of_range(spec, low, high)
    if not isinstance(spec.format, IntFormat) or spec.format.bits > 16:
        return best
    least = executor.squared_error(weight, best)
    fraction = np.ones_like(low, np.float64)
    for candidate in np.linspace(0.98, 0.4, 30):
        cost = executor.squared_error(weight, encoding_of_range(spec, low * candidate, high * candidate))
        fraction = np.where(cost < least, candidate, fraction)
        least = np.minimum(cost, least)
    return encoding_of_range(spec, low * fraction, high * fraction)


def _ends(spec: QuantSpec, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The range that each scale has to cover, zero included, or what the spec fixes of it."""
    low, high = (
        reduce_groups(weight, spec.granularity, partial(end, initial=0.0)) for end in (np.min, np.max)
    )
    fixed = zip(spec.fixed_range or (-np.inf, np.inf), (low, high), strict=True)
    low, high = (np.full_like(seen, end) if np.isfinite(end) else seen for end, seen in fixed)
    return low, high
