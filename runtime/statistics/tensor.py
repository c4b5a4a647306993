"""Mergeable summaries of tensors: range, moments, and an exact histogram over the values' leading 16 bits.

A histogram bin holds the values that share the top 16 bits of their float32 pattern (sign, exponent and
7 bits of mantissa), so bins are the same for every tensor and every shard, their relative width is below
1/128, no range has to be known beforehand, and merging is plain addition: exact in any order. Bins are named
by their *rank*: the 15 magnitude bits, negated for negative values. Ranks increase with the values, and rank
0 holds both zeros.

Sums of floats merge exactly as well, see :mod:`qc.runtime.statistics.exact_sum`. What is added up is one
float64 for each feed, so statistics of feeds are the same however the feeds were distributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation

from .exact_sum import ExactSum

BINS = 1 << 16
_SIGN = 1 << 15


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """What is known of all the values one tensor took. Implements :class:`qc.ir.executor.Statistics`.

    Attributes:
        minimum: smallest finite value; float32, shape ``()`` or ``(channels,)``; +inf where none was seen.
        maximum: largest finite value, likewise; -inf where none was seen.
        count: number of finite elements.
        nonfinite: number of NaN and infinite elements, which nothing else here takes into account.
        ranks: the non-empty bins in increasing order, int32; None without a histogram.
        counts: how many elements fell into each of ``ranks``, int64; None without a histogram.
        feeds: on how many feeds a finite value was seen, int64, of the shape of ``minimum``.
        ends: sums over those feeds of the smallest and of the largest value; shape ``(*minimum.shape, 2)``.
        sums: sums of the elements, of the shape of ``minimum``; None if not collected.
        products: sums of the squares, likewise, or the Gram matrix ``(channels, channels)``.
    """

    minimum: np.ndarray
    maximum: np.ndarray
    count: int
    nonfinite: int
    feeds: np.ndarray
    ends: ExactSum
    ranks: np.ndarray | None = None
    counts: np.ndarray | None = None
    sums: ExactSum | None = None
    products: ExactSum | None = None

    def __post_init__(self) -> None:
        # Adding 0 turns -0 into +0, so that the order of merging cannot show in the sign of a zero.
        for name in ("minimum", "maximum"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32) + np.float32(0))

    @classmethod
    def from_array(cls, array: np.ndarray, observation: Observation | None = None) -> TensorStatistics:
        """Summarizes an array in memory as one feed.

        Raises:
            UsageError: the axis of ``observation`` is outside the array.
        """
        observation = observation or Observation()
        values = np.asarray(array).astype(np.float32, copy=False)
        finite = np.isfinite(values)
        axes = _reduced_axes(values.ndim, observation.axis)
        low = np.asarray(np.min(values, axis=axes, where=finite, initial=np.inf))
        high = np.asarray(np.max(values, axis=axes, where=finite, initial=-np.inf))
        count = np.array(np.count_nonzero(finite), np.int64)
        ranges = Ranges()
        ranges.add(low, high, count, values.size - count)
        bins = None
        if observation.histogram:
            bits = np.ascontiguousarray(values[finite]).view(np.uint32) >> 16
            bins = np.bincount(bits, minlength=BINS).astype(np.int64)
        moments = _moments(np.where(finite, values, 0), observation) if _has_moments(observation) else None
        return ranges.statistics(bins, moments=moments)

    @property
    def has_histogram(self) -> bool:
        """Whether :meth:`histogram` has an answer."""
        return self.ranks is not None

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """The histogram as real intervals: edges float64 ``(n + 1,)``, counts int64 ``(n,)``.

        Bins are in increasing order and disjoint; a bin of positive values holds its lower edge and not its
        upper one, a bin of negative values the other way round, and the bin around zero neither. The first
        and last edge are the exact minimum and maximum. A run of empty bins is returned as a single one.

        Raises:
            UsageError: the values were observed without a histogram.
        """
        if self.ranks is None or self.counts is None:
            raise UsageError("no histogram was collected; observe the tensor with histogram=True")
        if self.ranks.size == 0:
            return np.zeros(1), np.zeros(0, np.int64)
        follows = self.ranks[1:] == self.ranks[:-1] + 1
        # Each bin starts at its own lower edge; after a gap, one more bin starts where the last one ended.
        gaps = np.flatnonzero(~follows) + 1
        starts = np.insert(self.ranks, gaps, self.ranks[gaps - 1] + 1)
        counts = np.insert(self.counts, gaps, 0)
        edges = _lower_edges(np.append(starts, starts[-1] + 1))
        edges[0], edges[-1] = self.minimum.min(), self.maximum.max()
        return edges, counts

    def above(self, limit: float) -> TensorStatistics:
        """The statistics of the bins above ``limit``; the smallest value is then the lower edge of a bin.

        Averages and moments stay those of all values.

        Raises:
            UsageError: the values were observed without a histogram.
        """
        if self.ranks is None or self.counts is None:
            raise UsageError("no histogram was collected; observe the tensor with histogram=True")
        edges = _lower_edges(self.ranks)
        kept = edges >= limit
        if not kept.any():
            return TensorStatistics.from_array(np.zeros(0, np.float32), Observation(histogram=True))
        low = np.maximum(self.minimum, np.float32(edges[kept][0]))
        counts = self.counts[kept]
        return replace(self, minimum=low, count=int(counts.sum()), ranks=self.ranks[kept], counts=counts)

    def average_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The averages over the feeds of the smallest and of the largest value, float64."""
        averages = self.ends.value() / np.maximum(self.feeds, 1)[..., None]
        seen = self.feeds > 0
        return np.where(seen, averages[..., 0], np.inf), np.where(seen, averages[..., 1], -np.inf)

    def mean(self) -> np.ndarray:
        """The mean of all elements, NaN and infinity counted as zero; float64, of the shape of ``minimum``.

        Raises:
            UsageError: the values were observed without moments.
        """
        return self._collected(self.sums).value() / self._positions

    def second_moment(self) -> np.ndarray:
        """The mean of the squares, or with a Gram matrix that of the products of channels; float64.

        Raises:
            UsageError: the values were observed without moments.
        """
        return self._collected(self.products).value() / self._positions

    @property
    def _positions(self) -> int:
        """How many elements each channel has, at least 1."""
        return max((self.count + self.nonfinite) // max(self.minimum.size, 1), 1)

    def _collected(self, sums: ExactSum | None) -> ExactSum:
        if sums is None:
            raise UsageError("no moments were collected; observe the tensor with moments=True or gram=True")
        return sums

    def merge(self, other: TensorStatistics) -> TensorStatistics:
        """The statistics of all elements of both; exact, and the same in any order.

        Raises:
            UsageError: one has a histogram or moments and the other has not, or the channels differ.
        """
        # Where nothing was seen, nothing is known of the channels.
        empty = self._is_empty or other._is_empty
        if self._collects() != other._collects() or not (empty or self._shapes() == other._shapes()):
            raise UsageError(
                f"statistics of {self.describe()} cannot be merged with statistics of {other.describe()}"
            )
        if empty:
            return other if self._is_empty else self
        ranks, counts = _sparse(self._dense() + other._dense()) if self.has_histogram else (None, None)
        return TensorStatistics(
            np.minimum(self.minimum, other.minimum),
            np.maximum(self.maximum, other.maximum),
            self.count + other.count,
            self.nonfinite + other.nonfinite,
            self.feeds + other.feeds,
            self.ends.merge(other.ends),
            ranks,
            counts,
            _merged(self.sums, other.sums),
            _merged(self.products, other.products),
        )

    @property
    def _is_empty(self) -> bool:
        return self.count + self.nonfinite == 0

    def _collects(self) -> tuple[bool, bool]:
        return self.has_histogram, self.products is not None

    def _shapes(self) -> tuple[object, ...]:
        return self.minimum.shape, self.products is not None and self.products.top.shape

    def _dense(self) -> np.ndarray:
        """The histogram over all bit patterns, int64 ``(65536,)``."""
        bins = np.zeros(BINS, np.int64)
        if self.ranks is not None and self.counts is not None:
            bins[np.where(self.ranks < 0, _SIGN - self.ranks, self.ranks)] = self.counts
        return bins

    def describe(self) -> str:
        """The kind of summary in words, for messages."""
        kind = f"{self.minimum.size} channels" if self.minimum.ndim else "a whole tensor"
        histogram = f"{'with' if self.has_histogram else 'without'} histogram"
        if self.products is None:
            return f"{kind} {histogram}"
        return f"{kind} {histogram}, with {'a Gram matrix' if self.products.top.ndim == 2 else 'moments'}"

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All fields as arrays, ready for ``numpy.savez``; :meth:`from_arrays` is the inverse."""
        arrays = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "count": np.array(self.count, np.int64),
            "nonfinite": np.array(self.nonfinite, np.int64),
            "feeds": self.feeds,
            **self.ends.to_arrays("ends"),
        }
        if self.ranks is not None and self.counts is not None:
            arrays |= {"ranks": self.ranks, "counts": self.counts}
        if self.sums is not None and self.products is not None:
            arrays |= self.sums.to_arrays("sums") | self.products.to_arrays("products")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> TensorStatistics:
        """Reads what :meth:`to_arrays` wrote.

        Raises:
            DataError: a field is missing.
        """
        try:
            return cls(
                arrays["minimum"],
                arrays["maximum"],
                int(arrays["count"]),
                int(arrays["nonfinite"]),
                arrays["feeds"],
                ExactSum.from_arrays(arrays, "ends"),
                arrays.get("ranks"),
                arrays.get("counts"),
                *(
                    ExactSum.from_arrays(arrays, name) if f"{name}_top" in arrays else None
                    for name in ("sums", "products")
                ),
            )
        except KeyError as error:
            raise DataError(f"stored statistics lack the field {error}; collect them again") from error


class Ranges:
    """Running minima, maxima and counts, element by element: of many tensors, or of the channels of one."""

    def __init__(self) -> None:
        self._minimum = np.array(np.inf, np.float32)
        self._maximum = np.array(-np.inf, np.float32)
        self._count = np.array(0, np.int64)
        self._nonfinite = np.array(0, np.int64)
        self._feeds = np.array(0, np.int64)
        self._ends = ExactSum.zero((2,))

    def add(self, minimum: np.ndarray, maximum: np.ndarray, count: np.ndarray, nonfinite: np.ndarray) -> None:
        """Adds one feed; the ranges (float32) and the counts (int64) each have one common shape."""
        self._minimum = np.minimum(self._minimum, minimum)
        self._maximum = np.maximum(self._maximum, maximum)
        self._count = self._count + count
        self._nonfinite = self._nonfinite + nonfinite
        seen = minimum <= maximum
        self._feeds = self._feeds + seen
        self._ends = self._ends.plus(np.where(seen[..., None], np.stack([minimum, maximum], -1), 0))

    def statistics(
        self,
        bins: np.ndarray | None,
        place: int | None = None,
        moments: tuple[ExactSum, ExactSum] | None = None,
    ) -> TensorStatistics:
        """The statistics of the element at ``place``, or of the channels of one tensor if that is None.

        Args:
            bins: the dense histogram, int64 ``(65536,)``, indexed by the top 16 bits of the float32 pattern.
            moments: sums and products, see :class:`TensorStatistics`.
        """
        low, high, feeds, ends = self._minimum, self._maximum, self._feeds, self._ends
        counts = [self._count.reshape(-1), self._nonfinite.reshape(-1)]
        if place is not None and low.ndim:
            low, high, feeds = low[place], high[place], feeds[place]
            ends, counts = ends[place], [count[place:] for count in counts]
        return TensorStatistics(
            np.array(low),
            np.array(high),
            int(counts[0][0]),
            int(counts[1][0]),
            np.array(feeds),
            ends,
            *((None, None) if bins is None else _sparse(bins)),
            *(moments or (None, None)),
        )


def _sparse(bins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks and counts of the non-empty bins of a dense histogram over bit patterns."""
    positive, negative = bins[:_SIGN], bins[_SIGN:]
    zero = positive[:1] + negative[:1]
    ordered = np.concatenate([negative[:0:-1], zero, positive[1:]])
    used = np.flatnonzero(ordered)
    return (used - (_SIGN - 1)).astype(np.int32), ordered[used]


def _lower_edges(ranks: np.ndarray) -> np.ndarray:
    """The smallest real value that bins of these ranks can hold, float64."""
    magnitudes = np.where(ranks > 0, ranks, 1 - ranks).astype(np.uint32)
    values = (magnitudes << 16).view(np.float32).astype(np.float64)
    return np.where(ranks > 0, values, -values)


def _reduced_axes(rank: int, axis: int | None) -> tuple[int, ...] | None:
    if axis is None:
        return None
    if not 0 <= axis < rank:
        raise UsageError(f"axis {axis} is outside a tensor of rank {rank}")
    return tuple(i for i in range(rank) if i != axis)


def _has_moments(observation: Observation) -> bool:
    return observation.moments or observation.gram


def _merged(first: ExactSum | None, second: ExactSum | None) -> ExactSum | None:
    return first.merge(second) if first is not None and second is not None else None


def _moments(values: np.ndarray, observation: Observation) -> tuple[ExactSum, ExactSum]:
    """Sums and products of finite values."""
    if observation.axis is None:
        rows = values.reshape(1, -1).astype(np.float64)
        sums, squares = rows.sum(), np.square(rows).sum()
        return ExactSum.of(sums), ExactSum.of(squares)
    moved = np.moveaxis(values, observation.axis, 0)
    rows = moved.reshape(len(moved), -1).astype(np.float64)
    products = rows @ rows.T if observation.gram else np.square(rows).sum(1)
    return ExactSum.of(rows.sum(1)), ExactSum.of(products)
