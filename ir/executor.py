"""What a pass may ask of a runtime: run the model on feeds, and summarize its tensors.

Passes never import a runtime. They are handed an :class:`Executor` and get back :class:`Statistics`; which
runtime computed them, and on which device, is no concern of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import numpy as np
import onnx

from .errors import UsageError

Feed = Mapping[str, np.ndarray]
"""One run's worth of inputs: an array for every graph input, by name."""


@dataclass(frozen=True)
class Observation:
    """What to collect of one tensor.

    Attributes:
        histogram: also count how often each value occurs (see :meth:`Statistics.histogram`).
        axis: collect minimum and maximum for each index along this axis, counted from 0; None for one pair
            over the whole tensor. A histogram is always of the whole tensor.
        moments: also collect sums and sums of squares, of the whole tensor or for each index along ``axis``.
        gram: also collect sums, and the sum of the products of each two channels (the Gram matrix of the
            tensor as rows of channels); needs ``axis``.

    Raises:
        UsageError: ``gram`` without ``axis``.
    """

    histogram: bool = False
    axis: int | None = None
    moments: bool = False
    gram: bool = False

    def __post_init__(self) -> None:
        if self.gram and self.axis is None:
            raise UsageError("a Gram matrix is over the channels of a tensor; give their axis")


@runtime_checkable
class Statistics(Protocol):
    """A summary of all the values one tensor took; summaries of parts merge to that of the whole."""

    @property
    def minimum(self) -> np.ndarray:
        """The smallest finite value, float32; shape ``()`` per tensor, ``(channels,)`` per channel.

        Plus infinity where no value was seen.
        """

    @property
    def maximum(self) -> np.ndarray:
        """The largest finite value, float32, same shape; minus infinity where no value was seen."""

    @property
    def count(self) -> int:
        """How many finite elements were seen, over all channels; 0 if the tensor was always empty."""

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges (float64, shape ``(n + 1,)``, not decreasing) and counts (int64, shape ``(n,)``).

        The bins are in increasing order, not of equal width, and span minimum to maximum. Summing the counts
        gives ``count``. ``n`` is 0 if no value was seen.

        Raises:
            UsageError: no histogram was asked for when the values were observed.
        """

    def above(self, limit: float) -> Self:
        """The statistics of the values above ``limit`` alone, as far as the bins of the histogram tell.

        Raises:
            UsageError: no histogram was asked for when the values were observed.
        """

    def average_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The averages over the feeds of the smallest and of the largest value; float64, as ``minimum``.

        Feeds on which no finite value was seen do not count; infinite, as ``minimum``, if there is no other.
        """

    def mean(self) -> np.ndarray:
        """The mean of all elements, float64, of the shape of ``minimum``; zero if there are none.

        NaN and infinity count as zero.

        Raises:
            UsageError: neither moments nor a Gram matrix were asked for when the values were observed.
        """

    def second_moment(self) -> np.ndarray:
        """The mean of the squares, as :meth:`mean`; with a Gram matrix that of the products, symmetric.

        A Gram matrix is of shape ``(channels, channels)``, and its means are over all positions of a channel.

        Raises:
            UsageError: as for :meth:`mean`.
        """

    def merge(self, other: Self) -> Self:
        """The statistics of both together; exact, commutative and associative."""


class Segments(Protocol):
    """A model that is run piece by piece on some feeds, each op about once."""

    def tensors(self, names: Sequence[str]) -> Mapping[str, Sequence[np.ndarray]]:
        """Tensors of the main graph by name: one array for each feed.

        Raises:
            UsageError, DataError, ModelError: as for :meth:`Executor.observe`.
        """

    def replace(self, name: str, array: np.ndarray) -> None:
        """Gives an initializer other numbers of the same shape and type; what was computed with it goes."""


class Executor(Protocol):
    """Runs ONNX models. Everything is streamed: memory does not grow with the number of feeds."""

    def observe(
        self,
        model: onnx.ModelProto,
        requests: Mapping[str, Observation],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: Callable[[int], None] | None = None,
    ) -> Mapping[str, Statistics]:
        """Runs ``model`` on every feed and summarizes the requested tensors, bodies included.

        Args:
            model: the float model; it is not changed.
            requests: what to collect, by tensor name.
            data: the feeds; at least one.
            base_dir: the folder that external data of ``model`` is relative to.
            on_feeds: called now and then with the number of feeds that were done since the last call.

        Returns:
            Statistics in the order of ``requests``.

        Raises:
            UsageError: the model has no such tensor.
            DataError: there is no feed, a feed does not fit the model, or an observed tensor became NaN or
                infinite; the message names the tensor and the number of the feed, counted from 0.
            ModelError: the runtime cannot load or run the model.
        """

    def run(
        self,
        model: onnx.ModelProto,
        data: Iterable[Feed],
        outputs: Sequence[str] | None = None,
        *,
        base_dir: Path | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Runs ``model`` on one feed after the other, as the results are asked for.

        Args:
            outputs: names of tensors of the main graph, also inner ones; None for the graph's outputs.

        Raises:
            UsageError, DataError, ModelError: as for :meth:`observe`.
        """

    def element_types(
        self, model: onnx.ModelProto, names: Sequence[str], *, base_dir: Path | None = None
    ) -> dict[str, int]:
        """Asks the runtime for the ``TensorProto.DataType`` of tensors that shape inference could not tell.

        0 stands for a value that is not a tensor (a sequence, map or optional). Nothing is run.

        Raises:
            UsageError, ModelError: as for :meth:`observe`.
        """

    def segments(
        self, model: onnx.ModelProto, feeds: Sequence[Feed], *, base_dir: Path | None = None
    ) -> Segments:
        """Opens a model for methods that visit its layers one after the other; nothing is run yet.

        What layers that were not visited yet read is kept for all feeds.
        """
