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

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation

from .exact_sum import ExactSum

BINS = 1 << 16
_RANGE = Observation()
_NO_HISTOGRAM = "no histogram was collected; observe one of the tensor"
_SIGN = 1 << 15


@dataclass(frozen=True, eq=False)
class MomentSums:
    """Sums of elements and of their products.

    Attributes:
        positions: how many rows of features there were, or elements of each channel.
        sums: of each feature or channel, shape ``(n,)``.
        products: of the squares, shape ``(n,)``; or for each group of features the rows of the upper triangle
            of the Gram matrix, one behind the other.
    """

    positions: int
    sums: ExactSum
    products: ExactSum

    def merge(self, other: MomentSums) -> MomentSums:
        """The sums over all positions of both."""
        positions = self.positions + other.positions
        return MomentSums(positions, self.sums.merge(other.sums), self.products.merge(other.products))


@dataclass(frozen=True, eq=False)
class TensorStatistics:
    """What is known of all the values one tensor took. Implements :class:`qc.ir.executor.Statistics`.

    Attributes:
        observation: what was collected.
        minimum: smallest finite value; float32, shape ``()`` or ``(channels,)``; +inf where none was seen.
        maximum: largest finite value, likewise; -inf where none was seen.
        count: number of finite elements.
        nonfinite: number of NaN and infinite elements, which nothing else here takes into account.
        feeds: on how many feeds a finite value was seen, int64, of the shape of ``minimum``.
        ends: sums over those feeds of the smallest and of the largest value; shape ``(*minimum.shape, 2)``.
        ranks: the non-empty bins in increasing order, int32; None without a histogram.
        counts: how many elements fell into each of ``ranks``, int64; None without a histogram.
        moments: those of all values; None if not collected.
    """

    observation: Observation
    minimum: np.ndarray
    maximum: np.ndarray
    count: int
    nonfinite: int
    feeds: np.ndarray
    ends: ExactSum
    ranks: np.ndarray | None = None
    counts: np.ndarray | None = None
    moments: MomentSums | None = None

    def __post_init__(self) -> None:
        # Adding 0 turns -0 into +0, so that the order of merging cannot show in the sign of a zero.
        for name in ("minimum", "maximum"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float32) + np.float32(0))

    @classmethod
    def from_array(cls, array: np.ndarray, observation: Observation = _RANGE) -> TensorStatistics:
        """Summarizes an array in memory as one feed.

        Raises:
            UsageError: the axis of ``observation`` is outside the array, or it is of patches.
        """
        if observation.patches is not None:
            raise UsageError("patches are observed while a model runs, not in an array")
        values = np.asarray(array).astype(np.float32, copy=False)
        axis = observation.axis
        if axis is not None and not 0 <= axis < values.ndim:
            raise UsageError(f"axis {axis} is outside a tensor of rank {values.ndim}")
        rows = np.moveaxis(values[np.newaxis] if axis is None else values, axis or 0, 0)
        rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        finite = np.isfinite(rows)
        seen = np.count_nonzero(finite)
        found = {
            "minimum": np.min(rows, axis=1, where=finite, initial=np.inf),
            "maximum": np.max(rows, axis=1, where=finite, initial=-np.inf),
            "count": np.array([seen], np.int64),
            "nonfinite": np.array([rows.size - seen], np.int64),
        }
        if observation.kind in ("moments", "gram"):
            wide = np.where(finite, rows, 0).astype(np.float64)
            gram = observation.kind == "gram"
            products = (wide @ wide.T)[np.triu_indices(len(wide))] if gram else np.square(wide).sum(1)
            found |= {"sums": wide.sum(1), "products": products, "positions": np.array([wide.shape[1]])}
        running = RunningSums(1)
        running.add(found)
        bins = None
        if observation.kind == "histogram":
            bins = np.bincount(rows[finite].view(np.uint32) >> 16, minlength=BINS).astype(np.int64)
        return running.statistics(observation, bins=bins)

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
            raise UsageError(_NO_HISTOGRAM)
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
            raise UsageError(_NO_HISTOGRAM)
        kept = _lower_edges(self.ranks) >= limit
        low, high = np.full_like(self.minimum, np.inf), np.full_like(self.maximum, -np.inf)
        if kept.any():
            first = np.float32(_lower_edges(self.ranks)[kept][0])
            low, high = np.asarray(np.maximum(self.minimum, first)), self.maximum
        counts = self.counts[kept]
        return replace(
            self, minimum=low, maximum=high, count=int(counts.sum()), ranks=self.ranks[kept], counts=counts
        )

    def average_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The averages over the feeds of the smallest and of the largest value, float64."""
        averages = self.ends.value() / np.maximum(self.feeds, 1)[..., None]
        seen = self.feeds > 0
        return np.where(seen, averages[..., 0], np.inf), np.where(seen, averages[..., 1], -np.inf)

    def mean(self) -> np.ndarray:
        """The mean of all elements, or of each feature, NaN and infinity counted as zero; float64.

        Its shape is that of ``minimum``, for patches ``(groups, features)``.

        Raises:
            UsageError: the values were observed without moments.
        """
        mean, patches = self._means("sums"), self.observation.patches
        if patches is None:
            return mean.reshape(self.minimum.shape)
        return mean.reshape(patches.group if mean.size > 1 else 1, -1)  # a single number if nothing was seen

    def second_moment(self) -> np.ndarray:
        """The mean of the squares, of the shape of ``minimum``; or that of the products of features, float64.

        A Gram matrix is of shape ``(features, features)``, for patches ``(groups, features, features)``.

        Raises:
            UsageError: the values were observed without moments.
        """
        means = self._means("products")
        if self.observation.kind != "gram":
            return means.reshape(self.minimum.shape)
        groups, features = self.mean().reshape(-1, self.mean().shape[-1]).shape
        matrices = np.zeros((groups, features, features))
        rows, columns = np.triu_indices(features)
        matrices[:, rows, columns] = matrices[:, columns, rows] = means.reshape(groups, -1)
        return matrices if self.observation.patches is not None else matrices[0]

    def _means(self, name: str) -> np.ndarray:
        if self.moments is None:
            raise UsageError("no moments were collected; observe moments or a Gram matrix of the tensor")
        sums: ExactSum = getattr(self.moments, name)
        return sums.value() / max(self.moments.positions, 1)

    def merge(self, other: TensorStatistics) -> TensorStatistics:
        """The statistics of all elements of both; exact, and the same in any order.

        Raises:
            UsageError: they are of different observations, or the channels differ.
        """
        # Where nothing was seen, nothing is known of the channels.
        empty = self._is_empty or other._is_empty
        if self.observation != other.observation or not (empty or self._shapes() == other._shapes()):
            raise UsageError(
                f"statistics of {self.describe()} cannot be merged with statistics of {other.describe()}"
            )
        if empty:
            return other if self._is_empty else self
        ranks, counts = _sparse(self._dense() + other._dense()) if self.has_histogram else (None, None)
        return TensorStatistics(
            self.observation,
            np.minimum(self.minimum, other.minimum),
            np.maximum(self.maximum, other.maximum),
            self.count + other.count,
            self.nonfinite + other.nonfinite,
            self.feeds + other.feeds,
            self.ends.merge(other.ends),
            ranks,
            counts,
            self.moments.merge(other.moments) if self.moments and other.moments else None,
        )

    @property
    def _is_empty(self) -> bool:
        return self.count + self.nonfinite == 0

    def _shapes(self) -> tuple[object, ...]:
        return self.minimum.shape, self.moments and self.moments.sums.top.shape

    def _dense(self) -> np.ndarray:
        """The histogram over all bit patterns, int64 ``(65536,)``."""
        bins = np.zeros(BINS, np.int64)
        if self.ranks is not None and self.counts is not None:
            bins[np.where(self.ranks < 0, _SIGN - self.ranks, self.ranks)] = self.counts
        return bins

    def describe(self) -> str:
        """The kind of summary in words, for messages."""
        of = f"{self.minimum.size} channels" if self.minimum.ndim else "a whole tensor"
        return f"{of} ({self.observation.kind})"

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All fields but the observation as arrays, ready for ``numpy.savez``; see :meth:`from_arrays`."""
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
        if self.moments is not None:
            arrays["positions"] = np.array(self.moments.positions, np.int64)
            arrays |= self.moments.sums.to_arrays("sums") | self.moments.products.to_arrays("products")
        return arrays

    @classmethod
    def from_arrays(cls, observation: Observation, arrays: Mapping[str, np.ndarray]) -> TensorStatistics:
        """Reads what :meth:`to_arrays` wrote.

        Raises:
            DataError: a field is missing.
        """
        try:
            moments = None
            if observation.kind in ("moments", "gram"):
                sums, products = (ExactSum.from_arrays(arrays, name) for name in ("sums", "products"))
                moments = MomentSums(int(arrays["positions"]), sums, products)
            ranks, counts = (
                arrays[name] if observation.kind == "histogram" else None for name in ("ranks", "counts")
            )
            return cls(
                observation,
                arrays["minimum"],
                arrays["maximum"],
                int(arrays["count"]),
                int(arrays["nonfinite"]),
                arrays["feeds"],
                ExactSum.from_arrays(arrays, "ends"),
                ranks,
                counts,
                moments,
            )
        except KeyError as error:
            raise DataError(f"stored statistics lack the field {error}; collect them again") from error


class RunningSums:
    """Summaries that grow with every feed: of several whole tensors, or of one with its channels.

    A feed brings arrays: ``minimum`` and ``maximum`` (float32), ``count`` and ``nonfinite`` (int64), and with
    moments ``sums`` and ``products`` (float64) and ``positions`` (int64), see :class:`MomentSums`.
    """

    def __init__(self, size: int) -> None:
        """Starts with nothing; ``size`` is the number of tensors."""
        self._minimum = np.full(size, np.inf, np.float32)
        self._maximum = np.full(size, -np.inf, np.float32)
        self._counts = {name: np.zeros(size, np.int64) for name in ("count", "nonfinite", "positions")}
        self._feeds = np.zeros(size, np.int64)
        self._sums = {"ends": ExactSum.zero((size, 2))}

    def add(self, found: Mapping[str, np.ndarray]) -> None:
        """Adds one feed. Shapes broadcast, as what never ran has one neutral number."""
        low, high = found["minimum"], found["maximum"]
        self._minimum, self._maximum = np.minimum(self._minimum, low), np.maximum(self._maximum, high)
        seen = low <= high
        self._feeds = self._feeds + seen
        self._add("ends", np.where(seen[:, None], np.stack([low, high], -1), 0))
        for name in found.keys() & self._counts.keys():
            self._counts[name] = self._counts[name] + found[name]
        for name in found.keys() & {"sums", "products"}:
            self._add(name, found[name])

    def _add(self, name: str, numbers: np.ndarray) -> None:
        self._sums[name] = self._sums.get(name, ExactSum.zero((1,))).plus(numbers)

    def statistics(
        self, observation: Observation, place: int = 0, bins: np.ndarray | None = None
    ) -> TensorStatistics:
        """The statistics of one tensor.

        Args:
            observation: what was collected.
            place: which of several whole tensors.
            bins: the dense histogram, int64 ``(65536,)``, indexed by the top 16 bits of the float32 pattern.
        """
        at = place if observation.axis is None else ...
        counts = {name: int(array[place]) for name, array in self._counts.items()}
        moments = None
        if observation.kind in ("moments", "gram"):
            none = ExactSum.zero((len(self._minimum),))  # before the first feed
            kept = slice(place, place + 1) if observation.is_whole else ...
            sums, products = (self._sums.get(name, none).copy(kept) for name in ("sums", "products"))
            moments = MomentSums(counts["positions"], sums, products)
        ranks, filled = (None, None) if bins is None else _sparse(bins)
        return TensorStatistics(
            observation,
            np.array(self._minimum[at]),
            np.array(self._maximum[at]),
            counts["count"],
            counts["nonfinite"],
            np.array(self._feeds[at]),
            self._sums["ends"].copy(at),
            ranks,
            filled,
            moments,
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
