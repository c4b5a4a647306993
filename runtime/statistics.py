"""Mergeable summaries of tensors: range and an exact histogram over the values' leading 16 bits.

A histogram bin holds the values that share the top 16 bits of their float32 pattern (sign, exponent and
7 bits of mantissa), so bins are the same for every tensor and every shard, their relative width is below
1/128, no range has to be known beforehand, and merging is plain addition: exact in any order. Bins are named
by their *rank*: the 15 magnitude bits, negated for negative values. Ranks increase with the values, and rank
0 holds both zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation

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
    """

    minimum: np.ndarray
    maximum: np.ndarray
    count: int = 0
    nonfinite: int = 0
    ranks: np.ndarray | None = None
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        # Adding 0 turns -0 into +0, so that the order of merging cannot show in the sign of a zero.
        for name in ("minimum", "maximum"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32) + np.float32(0))

    @classmethod
    def from_array(cls, array: np.ndarray, observation: Observation | None = None) -> TensorStatistics:
        """Summarizes an array in memory, as the op ``qc::Observe`` does it inside a graph.

        Raises:
            UsageError: the axis of ``observation`` is outside the array.
        """
        observation = observation or Observation()
        values = np.asarray(array).astype(np.float32, copy=False)
        finite = np.isfinite(values)
        axes = _reduced_axes(values.ndim, observation.axis)
        low = np.asarray(np.min(values, axis=axes, where=finite, initial=np.inf))
        high = np.asarray(np.max(values, axis=axes, where=finite, initial=-np.inf))
        count = int(np.count_nonzero(finite))
        nonfinite = values.size - count
        if not observation.histogram:
            return cls(low, high, count, nonfinite)
        bits = np.ascontiguousarray(values[finite]).view(np.uint32) >> 16
        return cls(low, high, count, nonfinite, *_sparse(np.bincount(bits, minlength=BINS).astype(np.int64)))

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

    def merge(self, other: TensorStatistics) -> TensorStatistics:
        """The statistics of all elements of both; exact, and the same in any order.

        Raises:
            UsageError: only one has a histogram, or the channels differ.
        """
        if self.minimum.shape != other.minimum.shape or self.has_histogram != other.has_histogram:
            raise UsageError(
                f"statistics of {self.describe()} cannot be merged with statistics of {other.describe()}"
            )
        ranges = Ranges()
        for part in (self, other):
            ranges.add(part.minimum, part.maximum, np.array(part.count), np.array(part.nonfinite))
        if not self.has_histogram:
            return ranges.statistics(None)
        return ranges.statistics(self._dense() + other._dense())

    def _dense(self) -> np.ndarray:
        """The histogram over all bit patterns, int64 ``(65536,)``."""
        bins = np.zeros(BINS, np.int64)
        if self.ranks is not None and self.counts is not None:
            bins[np.where(self.ranks < 0, _SIGN - self.ranks, self.ranks)] = self.counts
        return bins

    def describe(self) -> str:
        """The kind of summary in words, for messages."""
        kind = f"{self.minimum.size} channels" if self.minimum.ndim else "a whole tensor"
        return f"{kind} {'with' if self.has_histogram else 'without'} histogram"

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All fields as arrays, ready for ``numpy.savez``; :meth:`from_arrays` is the inverse."""
        arrays = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "count": np.array(self.count, np.int64),
            "nonfinite": np.array(self.nonfinite, np.int64),
        }
        if self.ranks is not None and self.counts is not None:
            arrays |= {"ranks": self.ranks, "counts": self.counts}
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
                arrays.get("ranks"),
                arrays.get("counts"),
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

    def add(self, minimum: np.ndarray, maximum: np.ndarray, count: np.ndarray, nonfinite: np.ndarray) -> None:
        """Adds one part; the ranges (float32) and the counts (int64) each have one common shape."""
        self._minimum = np.minimum(self._minimum, minimum)
        self._maximum = np.maximum(self._maximum, maximum)
        self._count = self._count + count
        self._nonfinite = self._nonfinite + nonfinite

    def statistics(self, bins: np.ndarray | None, place: int | None = None) -> TensorStatistics:
        """The statistics of the element at ``place``, or of the channels of one tensor if that is None.

        Args:
            bins: the dense histogram, int64 ``(65536,)``, indexed by the top 16 bits of the float32 pattern.
        """
        low, high = self._minimum, self._maximum
        counts = [self._count.reshape(-1), self._nonfinite.reshape(-1)]
        if place is not None and low.ndim:
            low, high, counts = low[place], high[place], [count[place:] for count in counts]
        sparse = (None, None) if bins is None else _sparse(bins)
        return TensorStatistics(np.array(low), np.array(high), int(counts[0][0]), int(counts[1][0]), *sparse)


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
