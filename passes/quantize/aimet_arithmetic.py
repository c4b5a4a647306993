"""AIMET's grids, bit for bit: its histogram, its range, its search and its rounding of the zero point.

Everything here is defined by what aimet-onnx 2.42 computes, down to which steps are taken in float32 and
which in float64; ``tests/fixtures/aimet`` holds its answers. For its own grids qc uses :mod:`.ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qc.ir.arithmetic import reduce_groups
from qc.ir.formats import IntFormat
from qc.ir.quant import Encoding, QuantSpec

BINS = 1536
_CLIPPING_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid in AIMET's terms: code ``q``, counted from 0, stands for ``delta * (q + offset)``.

    Attributes:
        delta, offset: float64, one element per scale; the offset is a whole number, at most 0.
        minimum, maximum: the real values of the outermost codes, as AIMET writes them to its files.
    """

    delta: np.ndarray
    offset: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray

    def encoding(self, spec: QuantSpec) -> Encoding:
        """The same grid as an encoding of an integer ``spec``."""
        assert isinstance(spec.format, IntFormat)
        first = spec.code_range[0] if spec.symmetric else spec.format.lowest
        return Encoding(spec, self.delta, first - self.offset)


def grid_of_range(spec: QuantSpec, low: np.ndarray, high: np.ndarray) -> Grid:
    """The grid of a range, as the scheme ``min_max`` (``post_training_tf``) makes it.

    With ``b`` bits and ``n = 2^b - 1`` steps, after widening the range to include zero::

        least       min(2^-23, 0.01 / n)
        asymmetric  delta = max((high - low) / n, least), offset = -round(-low / delta)
        symmetric   delta = max(high / (2^(b-1) - 1), -low / 2^(b-1), least), offset = -2^(b-1);
                    2 bits: delta = max(|low|, |high|) / 2
        narrow      delta = max(max(|low|, |high|) / (2^(b-1) - 1), least), offset = -(2^(b-1) - 1)
        one-sided   where low >= 0, delta as asymmetric, offset = 0; elsewhere symmetric

    Halves are rounded away from zero.

    Args:
        spec: of an integer format.
        low, high: any shape, one element per scale.
    """
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    steps, half = _steps(spec), 2.0 ** (spec.format.bits - 1)
    least = min(2.0**-23, 0.01 / steps)
    even = np.maximum((high - low) / steps, least)
    if not spec.symmetric:
        return _grid(even, -_round_away(-low / even), steps)
    reach = np.maximum(-low, high)
    if spec.narrow:
        return _grid(np.maximum(reach / (half - 1), least), np.full(low.shape, 1 - half), steps - 1)
    wide = reach / half if spec.format.bits == 2 else np.maximum(high / (half - 1), -low / half)
    one_sided = (low >= 0) & spec.one_sided
    delta = np.where(one_sided, even, np.maximum(wide, least))
    return _grid(delta, np.where(one_sided, 0.0, -half), steps)


def _grid(delta: np.ndarray, offset: np.ndarray, steps: float) -> Grid:
    return Grid(delta, offset + 0.0, delta * offset + 0.0, delta * (offset + steps))


def _steps(spec: QuantSpec) -> float:
    return 2.0**spec.format.bits - 1


def _round_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


class Histogram:
    """AIMET's histogram of one tensor over batches.

    The first batch that is not all zero fixes 1536 bins of one width, over three times its range; a bin
    border lies at zero. What falls outside is dropped, also in later batches. From that first batch on, each
    counts the same, however large it is.
    """

    def __init__(self, batches: Iterable[np.ndarray] = ()) -> None:
        self._batches = 0
        self._width = 0.0
        self._first = 0.0
        self.shares = np.zeros(BINS)
        for batch in batches:
            self.add(batch)

    @property
    def edges(self) -> np.ndarray:
        """The lower border of each bin, float64."""
        return np.asarray(self._width * (self._first + np.arange(BINS)))

    def add(self, batch: np.ndarray) -> None:
        """Counts the elements of a batch."""
        x = np.asarray(batch, np.float32).ravel()
        if not self._batches:
            if not x.any():
                return
            self._place(x.min(), x.max())
        inverse = np.float32(1 / self._width)
        bins = (np.floor(x * inverse) - np.float32(self._first)).astype(np.int64)
        counts = np.bincount(bins[(bins >= 0) & (bins < BINS)], minlength=BINS)
        self._batches += 1
        self.shares = (self.shares * (self._batches - 1) + counts / x.size) / self._batches

    def _place(self, low: np.float32, high: np.float32) -> None:
        if low == high:
            high = np.float32(high + np.float32(0.01))
        centre = (low + high) / np.float32(2)
        first, last = (centre + np.float32(3) * (end - centre) for end in (low, high))
        self._width = (float(last) - float(first)) / BINS
        self._first = float(np.floor(float(first) / self._width))


def searched_grid(spec: QuantSpec, histogram: Histogram) -> Grid:
    """The grid with the least error on a histogram, as the scheme ``tf_enhanced`` finds it.

    The range goes from the first to the last bin that is not empty, by their lower borders, and includes
    zero. Symmetric candidates have 0.01 to 1.01 times the step that covers it. Asymmetric candidates are that
    of the range itself, and those of 1/16 to 17/16 of its step and 21 offsets, cut to the range at one end or
    none.

    The error is the squared distance of the middle of each bin to its code, plus thrice that to the middle of
    the outermost bin that the grid reaches. The first of the best wins. A tensor of zeros gets the asymmetric
    grid of [-1, 1].
    """
    if not histogram.shares.any():
        steps = _steps(spec)
        return _grid(np.asarray(2 / steps), np.asarray(-(steps + 1) / 2), steps)
    used = np.flatnonzero(histogram.shares)
    ends = histogram.edges[used[[0, -1]]].astype(np.float32)
    low, high = np.minimum(ends[0], np.float32(0)), np.maximum(ends[1], np.float32(0))
    high = np.maximum(high, np.float32(low + np.float32(0.01)))
    delta, offset = _symmetric(spec, low, high) if spec.symmetric else _asymmetric(spec, low, high)
    best = int(np.argmin(_errors(histogram, delta, offset, _steps(spec))))
    steps = _steps(spec) - (1 if spec.narrow else 0)
    minimum, maximum = (delta[best] * np.float32(code) for code in (offset[best], offset[best] + steps))
    return Grid(
        *(np.asarray(number, np.float64) + 0.0 for number in (delta[best], offset[best], minimum, maximum))
    )


def _symmetric(spec: QuantSpec, low: np.float32, high: np.float32) -> tuple[np.ndarray, np.ndarray]:
    steps = _steps(spec) - (1 if spec.narrow else 0)
    if spec.one_sided and low == 0:
        full, offset = np.float32(float(high) / steps), 0.0
    else:
        full = np.float32(float(np.maximum(high, -low)) / (steps / 2))
        offset = float(np.floor(-steps / 2))
    delta = full * _FACTORS
    return delta, np.full(delta.shape, offset)


def _factors() -> np.ndarray:
    """0.01 to 1.01, as a loop in float32 adds them up."""
    sums = [np.float32(0)]
    for _ in range(101):
        sums.append(np.float32(float(sums[-1]) + 0.01))
    return np.asarray(sums[1:])


_FACTORS = _factors()


def _asymmetric(spec: QuantSpec, low: np.float32, high: np.float32) -> tuple[np.ndarray, np.ndarray]:
    steps = _steps(spec)
    full = np.float32((float(high) - float(low)) / steps)
    zero = _round_away(np.asarray(low / full, np.float64))
    low, high = full * np.float32(zero), full * np.float32(zero + steps)
    tried = (np.arange(1, 18, dtype=np.float32) * full / np.float32(16))[:, None]
    offsets = np.trunc(steps * np.arange(21) / 20 - steps)
    bottom = np.maximum(low, tried * offsets.astype(np.float32)).ravel()
    top = np.minimum(high, tried * (offsets + steps).astype(np.float32)).ravel()
    delta = ((top.astype(np.float64) - bottom) / steps).astype(np.float32)
    tried_anew = (delta > 0) & ~((bottom == low) & (top == high))
    bottom, delta = bottom[tried_anew], delta[tried_anew]
    offset = _round_away((bottom / delta).astype(np.float64))
    return np.append(full, delta), np.append(zero, offset)


def _errors(histogram: Histogram, delta: np.ndarray, offset: np.ndarray, steps: float) -> np.ndarray:
    """The error of each candidate; float64."""
    edges, used = histogram.edges, np.flatnonzero(histogram.shares)
    width = edges[1] - edges[0]

    def reached(code: np.ndarray) -> np.ndarray:
        distance = delta * code.astype(np.float32) - edges[:1].astype(np.float32)
        return np.clip(np.floor(distance / width), 0, BINS - 1).astype(np.int64)[:, None]

    def middle(bins: np.ndarray) -> np.ndarray:
        return (edges[0] + bins * width + width / 2).astype(np.float32)

    first, last = reached(offset), reached(offset + steps)
    x, step, zero = middle(used), delta[:, None], offset[:, None].astype(np.float32)
    rounded = step * (_round_away(x / step - zero) + zero)
    clipped = (used < first) | (used >= last)
    nearest = np.where(used < first, middle(first), np.where(clipped, middle(last), rounded))
    costs = histogram.shares[used] * (x - nearest).astype(np.float64) ** 2
    return np.asarray(np.sum(np.where(clipped, _CLIPPING_WEIGHT * costs, costs), axis=1))


def grid_of_fixed_range(spec: QuantSpec) -> Grid:
    """The grid of ``spec.fixed_range``, as AIMET makes it of constraints; halves are rounded to even."""
    assert spec.fixed_range is not None
    low = np.minimum(np.float64(spec.fixed_range[0]), 0.0)
    high = np.maximum(np.maximum(np.float64(spec.fixed_range[1]), 0.0), low + 0.01)
    steps, half = _steps(spec), 2.0 ** (spec.format.bits - 1)
    if not spec.symmetric:
        delta = (high - low) / steps
        return _grid(np.asarray(delta), np.asarray(np.rint(low / delta)), steps)
    delta = np.maximum(high / (half - 1), -low / half)
    if spec.narrow:
        return _grid(np.asarray(delta), np.asarray(1 - half), steps - 1)
    return _grid(np.asarray(delta), np.asarray(-half), steps)


def grid_of_weight(spec: QuantSpec, weight: np.ndarray, search: bool) -> Grid:
    """The grid of a weight, with one scale per tensor, channel or block.

    Args:
        search: each scale by :func:`searched_grid` of its elements, instead of their range.
    """
    if not search:
        low = reduce_groups(weight, spec.granularity, np.min)
        high = reduce_groups(weight, spec.granularity, np.max)
        return grid_of_range(spec, low, high)

    def searched(group: np.ndarray, axis: int | tuple[int, ...] | None) -> np.ndarray:
        axes = tuple(range(group.ndim)) if axis is None else np.atleast_1d(axis)
        kept = [i for i in range(group.ndim) if i not in axes]
        rows = group.transpose(*kept, *axes).reshape(*(group.shape[i] for i in kept), -1)
        found = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(found.shape):
            found[place] = searched_grid(spec, Histogram([rows[place]]))
        return found

    grids = reduce_groups(weight, spec.granularity, searched)
    return Grid(*(np.vectorize(lambda g, n=name: getattr(g, n), otypes=[float])(grids) for name in _NUMBERS))


_NUMBERS = ("delta", "offset", "minimum", "maximum")
