"""AIMET's grids, bit for bit: its histogram, its range, its search and its rounding of the zero point.

Everything here is defined by what aimet-onnx 2.42 computes, down to which steps are taken in float32 and
which in float64; ``tests/fixtures/aimet`` holds its answers. For its own grids qc uses :mod:`.ranges`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from qc.ir.quant.arithmetic import reduce_groups
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, QuantSpec

BINS = 1536
_CLIPPING_WEIGHT = 3.0


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid in AIMET's terms: code ``q``, counted from 0, stands for ``delta * (q + offset)``.

    Attributes:
        delta, offset: float64, one element per scale; the offset is a whole number, at most 0, but for a
            shifted grid, where it ends in a half.
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
        return Encoding(spec, self.delta, first + spec.shift - self.offset)


def grid_of_range(spec: QuantSpec, low: np.ndarray, high: np.ndarray) -> Grid:
    """The grid of a range, as the scheme ``min_max`` (``post_training_tf``) makes it.

    With ``b`` bits and ``n = 2^b - 1`` steps, after widening the range to include zero::

        least       min(2^-23, 0.01 / n)
        asymmetric  delta = max((high - low) / n, least), offset = -round(-low / delta)
        symmetric   delta = max(high / (2^(b-1) - 1), -low / 2^(b-1), least), offset = -2^(b-1);
                    2 bits: delta = max(|low|, |high|) / 2
        shifted     delta = max(max(|low|, |high|) / (2^(b-1) - 1/2), least), offset = -(2^(b-1) - 1/2)
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
    least = _least_step(spec)
    even = np.maximum((high - low) / steps, least)
    if not spec.symmetric:
        return _grid(even, -_round_away(-low / even), steps)
    reach = np.maximum(-low, high)
    if spec.narrow:
        return _grid(np.maximum(reach / (half - 1), least), np.full(low.shape, 1 - half), steps - 1)
    if spec.shifted:
        middle = half - spec.shift
        return _grid(np.maximum(reach / middle, least), np.full(low.shape, -middle), steps)
    wide = reach / half if spec.format.bits == 2 else np.maximum(high / (half - 1), -low / half)
    one_sided = (low >= 0) & spec.one_sided
    delta = np.where(one_sided, even, np.maximum(wide, least))
    return _grid(delta, np.where(one_sided, 0.0, -half), steps)


def _grid(delta: np.ndarray, offset: np.ndarray, steps: float) -> Grid:
    return Grid(delta, offset + 0.0, delta * offset + 0.0, delta * (offset + steps))


def _steps(spec: QuantSpec) -> float:
    return 2.0**spec.format.bits - 1


def _least_step(spec: QuantSpec) -> float:
    return min(2.0**-23, 0.01 / _steps(spec))


def _round_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


class Histogram:
    """AIMET's histogram of one tensor over batches, or of several that share a grid.

    The first batch that is not all zero fixes 1536 bins of one width, over three times its range; a bin
    border lies at zero. What falls outside is dropped, also in later batches. From that first batch on, each
    counts the same, however large it is. Of several tensors AIMET lets the one that is computed first fix the
    bins, so that it drops others which are larger; here all do.
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

    def add(self, *batches: np.ndarray) -> None:
        """Counts the elements of a batch, or of one of each tensor; none is empty."""
        arrays = [np.asarray(batch, np.float32).ravel() for batch in batches]
        if not self._batches:
            if not any(x.any() for x in arrays):
                return
            self._place(min(x.min() for x in arrays), max(x.max() for x in arrays))
        inverse = np.float32(1 / self._width)
        for x in arrays:
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


HistogramRule = Callable[[QuantSpec, Histogram], Grid]


def searched_grid(spec: QuantSpec, histogram: Histogram) -> Grid:
    """The grid with the least error on a histogram, as the scheme ``tf_enhanced`` finds it.

    The range goes from the first to the last bin that is not empty, by their lower borders, and includes
    zero. Symmetric candidates have 0.01 to 1.01 times the step that covers it. Asymmetric candidates are that
    of the range itself, and those of 1/16 to 17/16 of its step and 21 offsets, cut to the range; those that
    exceed it at both ends are left out.

    The error is the squared distance of the middle of each bin to its code, plus thrice that to the middle of
    the outermost bin that the grid reaches. The first of the best wins. A tensor of zeros gets the asymmetric
    grid of [-1, 1].

    Of 80,000 random grids two are not those of AIMET, both of one tensor in 16 bits, where the errors of two
    candidates differ by 4e-5 of their size.
    """
    if not histogram.shares.any():
        return _grid_of_zeros(spec)
    used = np.flatnonzero(histogram.shares)
    low, high = _with_zero(*histogram.edges[used[[0, -1]]].astype(np.float32))
    delta, offset = _symmetric(spec, low, high) if spec.symmetric else _asymmetric(spec, low, high)
    best = int(np.argmin(_errors(histogram, delta, offset, _steps(spec))))
    steps = _steps(spec) - (1 if spec.narrow else 0)
    minimum, maximum = (delta[best] * np.float32(code) for code in (offset[best], offset[best] + steps))
    return Grid(
        *(np.asarray(number, np.float64) + 0.0 for number in (delta[best], offset[best], minimum, maximum))
    )


def percentile_grid(spec: QuantSpec, histogram: Histogram, percentile: float = 100.0) -> Grid:
    """The grid of the range that leaves out shares of the values, as the scheme ``percentile`` finds it.

    The range goes from the first bin up to which more than ``1 - percentile / 100`` of the values lie to the
    first one up to which ``percentile / 100`` do, or else the last one that is not empty, by lower borders.
    It includes zero and is at least 0.01 wide. A tensor of zeros gets the grid of [-1, 1], asymmetric unless
    narrow.

    AIMET-ONNX can only ask for 100 percent. At others its C++ library sometimes takes one bin more, if the
    histogram dropped so many values that their share is never reached.
    """
    if not histogram.shares.any():
        ends = np.asarray(-1.0), np.asarray(1.0)
        return grid_of_range(spec, *ends) if spec.narrow else _grid_of_zeros(spec)
    share = np.float32(percentile) / np.float32(100)
    below = np.cumsum(histogram.shares)
    last = int(np.flatnonzero(histogram.shares)[-1])
    first = min(int(np.searchsorted(below, float(np.float32(1) - share), "right")), last)
    last = min(int(np.searchsorted(below, float(share), "left")), last)
    low, high = _with_zero(*histogram.edges[[first, last]].astype(np.float32))
    return grid_of_range(spec, np.asarray(low), np.asarray(high))


def _with_zero(low: np.float32, high: np.float32) -> tuple[np.float32, np.float32]:
    """The range with zero in it, and 0.01 wide at least."""
    low = np.minimum(low, np.float32(0))
    return low, np.maximum(np.maximum(high, np.float32(0)), np.float32(low + np.float32(0.01)))


def _grid_of_zeros(spec: QuantSpec) -> Grid:
    steps = _steps(spec)
    return _grid(np.asarray(2 / steps), np.asarray(-(steps + 1) / 2), steps)


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
    bottom = (tried * offsets.astype(np.float32)).ravel()
    top = (tried * (offsets + steps).astype(np.float32)).ravel()
    inside = ~((bottom < low) & (top > high))
    bottom, top = np.maximum(low, bottom[inside]), np.minimum(high, top[inside])
    delta = ((top.astype(np.float64) - bottom) / steps).astype(np.float32)
    bottom, delta = bottom[delta > 0], delta[delta > 0]
    offset = _round_away((bottom / delta).astype(np.float64))
    return np.append(delta, full), np.append(offset, zero)


def _errors(histogram: Histogram, delta: np.ndarray, offset: np.ndarray, steps: float) -> np.ndarray:
    """The error of each candidate; float64."""
    edges, used = histogram.edges, np.flatnonzero(histogram.shares)
    width = edges[1] - edges[0]

    def reached(code: np.ndarray) -> np.ndarray:
        distance = delta * code.astype(np.float32) - edges[:1].astype(np.float32)
        return np.clip(np.floor(distance / width), 0, BINS - 1).astype(np.int64)[:, None]

    def middle(bins: np.ndarray) -> np.ndarray:
        return np.asarray(edges[bins].astype(np.float32) + np.float32(width / 2))

    first, last = reached(offset), reached(offset + steps)
    x, step, zero = middle(used), delta[:, None], offset[:, None].astype(np.float32)
    rounded = step * (_round_away(x / step - zero) + zero)
    clipped = (used < first) | (used >= last)
    nearest = np.where(used < first, middle(first), np.where(clipped, middle(last), rounded))
    costs = histogram.shares[used] * (x - nearest).astype(np.float64) ** 2
    return np.asarray(np.sum(np.where(clipped, _CLIPPING_WEIGHT * costs, costs), axis=1))


_WIDTH = 0.01  # of a fixed range, at least


def with_fixed_ends(spec: QuantSpec, grid: Grid) -> Grid:
    """The grid with the ends that ``spec.fixed_range`` fixes; an infinite end stays as it is in ``grid``.

    Where one end comes from the data, AIMET makes the range 0.01 wide at least, which leaves few codes to a
    tensor of small numbers. Here its step is 2^-23 at least, as without a fixed range.
    """
    assert spec.fixed_range is not None
    ends = zip(spec.fixed_range, (grid.minimum, grid.maximum), strict=True)
    low, high = (np.full_like(seen, fixed) if np.isfinite(fixed) else seen for fixed, seen in ends)
    is_fixed = np.isfinite(spec.fixed_range).all()
    return _grid_between(spec, low, high, _WIDTH if is_fixed else _steps(spec) * _least_step(spec))


def _grid_between(spec: QuantSpec, low: np.ndarray, high: np.ndarray, width: float) -> Grid:
    low = np.minimum(np.float64(low), 0.0)
    high = np.maximum(np.maximum(np.float64(high), 0.0), low + width)
    steps, half = _steps(spec), 2.0 ** (spec.format.bits - 1)
    if not spec.symmetric:
        delta = (high - low) / steps
        return _grid(np.asarray(delta), np.asarray(np.rint(low / delta)), steps)
    delta = np.maximum(high / (half - 1), -low / half)
    if spec.narrow:
        return _grid(np.asarray(delta), np.full_like(delta, 1 - half), steps - 1)
    return _grid(np.asarray(delta), np.full_like(delta, -half), steps)


def grid_of_weight(
    spec: QuantSpec, weight: np.ndarray, rule: HistogramRule | None = None, kernel: tuple[int, ...] = ()
) -> Grid:
    """The grid of a weight, with one scale per tensor, channel or block.

    Args:
        rule: what makes a grid of the elements of each scale, such as :func:`searched_grid`; by default, and
            for shifted grids always, their range does.
        kernel: the axes of the kernel of a convolution, all of which a block covers.
    """
    if kernel and isinstance(spec.granularity, PerBlock):
        return _grid_of_kernels(spec, spec.granularity, weight, rule, kernel)
    if rule is None or spec.shifted:
        low = reduce_groups(weight, spec.granularity, np.min)
        high = reduce_groups(weight, spec.granularity, np.max)
        return grid_of_range(spec, low, high)

    def searched(group: np.ndarray, axis: int | tuple[int, ...] | None) -> np.ndarray:
        axes = tuple(range(group.ndim)) if axis is None else np.atleast_1d(axis)
        kept = [i for i in range(group.ndim) if i not in axes]
        rows = group.transpose(*kept, *axes).reshape(*(group.shape[i] for i in kept), -1)
        found = np.empty(rows.shape[:-1], object)
        for place in np.ndindex(found.shape):
            found[place] = rule(spec, Histogram([rows[place]]))
        return found

    grids = reduce_groups(weight, spec.granularity, searched)
    return Grid(*(np.vectorize(lambda g, n=name: getattr(g, n), otypes=[float])(grids) for name in _NUMBERS))


def _grid_of_kernels(
    spec: QuantSpec,
    blocks: PerBlock,
    weight: np.ndarray,
    rule: HistogramRule | None,
    kernel: tuple[int, ...],
) -> Grid:
    """The grid of blocks that cover the kernel, with the same numbers at all its positions."""
    last = tuple(range(-len(kernel), 0))
    channels = np.moveaxis(np.moveaxis(weight, kernel, last), blocks.axis, -1 - len(kernel))
    merged = channels.reshape(*channels.shape[: -1 - len(kernel)], -1)
    size = blocks.size * math.prod(weight.shape[axis] for axis in kernel)
    grid = grid_of_weight(spec.with_granularity(PerBlock(merged.ndim - 1, size)), merged, rule)

    def spread(numbers: np.ndarray) -> np.ndarray:
        nested = np.expand_dims(np.moveaxis(numbers, -1, blocks.axis), kernel)
        shape = tuple(weight.shape[i] if i in kernel else n for i, n in enumerate(nested.shape))
        return np.broadcast_to(nested, shape)

    return Grid(*(spread(getattr(grid, name)) for name in _NUMBERS))


_NUMBERS = ("delta", "offset", "minimum", "maximum")
