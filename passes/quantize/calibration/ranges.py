"""From statistics to ranges, and from ranges to encodings."""

from __future__ import annotations

from functools import partial

import numpy as np

from qc.ir.errors import ModelError
from qc.ir.executor import Statistics
from qc.ir.quant.arithmetic import fake_quantize, reduce_groups
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.tensor_ref import TensorRef

# As many candidates for a range are judged at once: more of them leave the cache of a processor.
_AT_ONCE = 4


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
    statistics: Statistics, spec: QuantSpec, steps: int = 48, clipping: float = 1.0
) -> tuple[float, float]:
    """The range whose grid has the least expected squared error on the histogram.

    Both ends are searched in turn over ``steps`` fractions of the observed end, spaced geometrically from 1
    to 1/32, twice; the error of a candidate is integrated exactly for values spread evenly within bins.
    Errors of values outside the range count ``clipping`` times.
    """
    edges, counts = statistics.histogram()
    low, high = float(statistics.minimum), float(statistics.maximum)
    if not counts.size or not isinstance(spec.format, IntFormat):
        return low, high
    fractions = np.geomspace(1.0, 1.0 / 32.0, steps)

    def best(bottom: np.ndarray | float, top: np.ndarray | float) -> float:
        """The fraction whose range has the least error; the largest of equals."""
        bottoms, tops = np.broadcast_arrays(bottom, top)
        errors = []
        for part in (slice(start, start + _AT_ONCE) for start in range(0, steps, _AT_ONCE)):
            encodings = encoding_of_range(spec, bottoms[part], tops[part])
            errors.append(histogram_error(edges, counts, encodings, clipping))
        return float(fractions[np.argmin(np.concatenate(errors))])

    if spec.symmetric:
        fraction = best(low * fractions, high * fractions)
        return low * fraction, high * fraction
    bottom, top = low, high
    for _ in range(2):
        top = high * best(bottom, high * fractions)
        bottom = low * best(low * fractions, top)
    return bottom, top


def histogram_error(
    edges: np.ndarray, counts: np.ndarray, encoding: Encoding, clipping: float = 1.0
) -> np.ndarray:
    """The summed squared rounding and clipping error of integer grids of a whole tensor on its histogram.

    The distance to the grid is piecewise linear, so its square integrates to a cubic in each piece; bins much
    narrower than a step count as points, where the difference of integrals would cancel. Errors beyond the
    outermost codes count ``clipping`` times.

    Args:
        edges, counts: the histogram; ``bins + 1`` and ``bins`` elements.
        encoding: one grid, or several to compare, in a scale of any shape.
        clipping: the weight of errors beyond the outermost codes.

    Returns:
        The errors; float64, shape of the scale.
    """
    first, last = encoding.spec.code_range
    scale = encoding.scale.astype(np.float64)
    steps = float(last - first)
    ends = edges / scale[..., None] + (encoding.zero_point - float(first))[..., None]
    width = np.diff(ends)
    wide = width > 1e-3
    centre = (ends[..., :-1] + ends[..., 1:]) / 2
    point = centre - np.clip(np.rint(centre), 0.0, steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.diff(_integral(ends, steps, clipping)) / width
    weight = np.where((centre < 0.0) | (centre > steps), clipping, 1.0)
    return np.sum(counts * np.where(wide, mean, weight * point * point), axis=-1) * scale * scale


def _integral(u: np.ndarray, steps: float, clipping: float) -> np.ndarray:
    """The integral from 0 to ``u`` of the weighted squared distance to the nearest code, 0 to ``steps``."""
    inside = np.clip(u, 0.0, steps)
    nearest = np.rint(inside)
    rest = inside - nearest
    outside = u - inside
    cubes = rest * rest * rest + clipping * (outside * outside * outside)  # ** 3 takes ten times as long
    return nearest / 12.0 + cubes / 3.0


def finite_data(const: TensorRef) -> np.ndarray:
    """The data of a constant; raises ModelError if NaN or infinity is in it, which no grid has."""
    array = const.numpy()
    if not np.isfinite(array).all():
        raise ModelError(
            f"the constant '{const.proto.name}' holds NaN or infinity; mend the model or skip its op"
        )
    return array


def weight_encoding(spec: QuantSpec, weight: np.ndarray, search: bool) -> Encoding:
    """The encoding of a weight.

    Args:
        spec: per tensor, per channel or per block.
        weight: float array.
        search: choose for every scale the fraction of the full range with the least squared error, instead
            of the full range.
    """
    low = reduce_groups(weight, spec.granularity, partial(np.min, initial=0.0))
    high = reduce_groups(weight, spec.granularity, partial(np.max, initial=0.0))
    best = encoding_of_range(spec, low, high)
    if not search or not isinstance(spec.format, IntFormat):
        return best

    def error(encoding: Encoding) -> np.ndarray:
        return reduce_groups((weight - fake_quantize(weight, encoding)) ** 2, spec.granularity, np.sum)

    least = error(best)
    fraction = np.ones_like(low, np.float64)
    for candidate in np.linspace(0.98, 0.4, 30):
        cost = error(encoding_of_range(spec, low * candidate, high * candidate))
        fraction = np.where(cost < least, candidate, fraction)
        least = np.minimum(cost, least)
    return encoding_of_range(spec, low * fraction, high * fraction)
