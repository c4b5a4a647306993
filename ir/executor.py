"""What a pass may ask of a runtime: run the model on feeds, and summarize its tensors.

Passes never import a runtime. They are handed an :class:`Executor` and get back :class:`Statistics`; which
runtime computed them, and on which device, is no concern of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
import onnx

from .errors import UsageError
from .quant.spec import Encoding

Feed = Mapping[str, np.ndarray]
"""One run's worth of inputs: an array for every graph input, by name."""


@dataclass(frozen=True)
class Patches:
    """What the kernel of a convolution sees of its input ``(batch, channels, *spatial)``.

    The features of a patch are in the order of the weight ``(out, channels / group, *kernel)``: channels of
    the group, and within each the places of the kernel. A transposed convolution sees, at each of its
    outputs, the input with zeros put between its elements, from behind.

    Attributes:
        kernel: its lengths along the spatial axes.
        strides, dilations: along them; empty for 1.
        pads: before each spatial axis, then after each; empty for 0.
        group: how many groups the channels are divided into.
        auto_pad: ``NOTSET``, ``VALID``, ``SAME_UPPER`` or ``SAME_LOWER``.
        transposed: whether the convolution is.
        output_padding, output_shape: of a transposed one, along the spatial axes; empty for 0, and for what
            follows from the others.

    Raises:
        UsageError: no kernel has these numbers.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    group: int = 1
    auto_pad: str = "NOTSET"
    transposed: bool = False
    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        axes = len(self.kernel)
        lists = self.strides, self.dilations, self.output_padding, self.output_shape
        lengths = (*((len(given), axes) for given in lists), (len(self.pads), 2 * axes))
        least = min((*self.kernel, *self.strides, *self.dilations, self.group), default=0)
        if least < 1 or not axes or any(given not in (0, needed) for given, needed in lengths):
            raise UsageError(f"{self} are of no convolution: strides, dilations and pads fit the kernel")
        if self.auto_pad not in _AUTO_PADS:
            raise UsageError(f"auto_pad is one of {', '.join(_AUTO_PADS)}, not '{self.auto_pad}'")


_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
Kind = Literal["range", "histogram", "moments", "gram"]


@dataclass(frozen=True)
class Observation:
    """One thing to collect of a tensor. The range of the tensor is always among what is collected.

    Attributes:
        kind: ``range``: minimum and maximum, and their averages over the feeds; ``histogram``: also how often
            each value of the whole tensor occurs; ``moments``: also sums and sums of squares; ``gram``: also
            sums, and the sums of the products of each two features (the Gram matrix of the tensor as rows of
            features).
        axis: collect it for each index along this axis, counted from 0, which are the features of a Gram
            matrix; None for the whole tensor.
        patches: the features of a Gram matrix are those of patches.

    Raises:
        UsageError: a kind that does not exist, an axis below 0, a histogram with an axis, a Gram matrix
            without features, or patches for something else.
    """

    kind: Kind = "range"
    axis: int | None = None
    patches: Patches | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UsageError(f"an observation is one of {', '.join(get_args(Kind))}, not '{self.kind}'")
        if self.axis is not None and self.axis < 0:
            raise UsageError(f"the axis of an observation is counted from 0, not {self.axis}")
        if self.kind == "histogram" and self.axis is not None:
            raise UsageError("a histogram is of a whole tensor; observe ranges along an axis beside it")
        if self.kind == "gram" and (self.axis is None) == (self.patches is None):
            raise UsageError("a Gram matrix is over features of a tensor; give their axis, or patches")
        if self.kind != "gram" and self.patches is not None:
            raise UsageError("patches are the features of a Gram matrix; observe it")

    @property
    def is_whole(self) -> bool:
        """Whether the whole tensor is looked at, without axis and features."""
        return self.axis is None and self.patches is None


Requests = Mapping[str, Collection[Observation]]
"""What to collect of each tensor, by its name."""

Request = tuple[str, Observation]
"""A tensor, and one thing to collect of it."""


def asked_of(requests: Requests) -> list[Request]:
    """Each tensor with each of its observations, once and always in the same order."""
    return [(name, one) for name, asked in requests.items() for one in sorted(set(asked), key=repr)]


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

    @property
    def feeds(self) -> np.ndarray:
        """On how many feeds a finite value was seen, int64; shape as ``minimum``."""

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges (float64, shape ``(n + 1,)``, not decreasing) and counts (int64, shape ``(n,)``).

        The bins are in increasing order, not of equal width, and span minimum to maximum. Summing the counts
        gives ``count``. ``n`` is 0 if no value was seen.

        Raises:
            UsageError: no histogram was asked for when the values were observed.
        """

    def above(self, limit: float) -> Self:
        """The statistics of the values above ``limit`` alone, as far as the bins of the histogram tell.

        Averages over the feeds and moments stay those of all values.

        Raises:
            UsageError: no histogram was asked for when the values were observed.
        """

    def average_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The averages over the feeds of the smallest and of the largest value; float64, as ``minimum``.

        Feeds on which no finite value was seen do not count; infinite, as ``minimum``, if there is no other.
        """

    def mean(self) -> np.ndarray:
        """The mean of all elements, or of each feature of a Gram matrix; float64, zero if there are none.

        The shape is that of ``minimum``, for patches ``(groups, features)``. NaN and infinity count as zero.

        Raises:
            UsageError: neither moments nor a Gram matrix were asked for when the values were observed.
        """

    def second_moment(self) -> np.ndarray:
        """The mean of the squares, as :meth:`mean`; with a Gram matrix that of the products, symmetric.

        A Gram matrix is of shape ``(features, features)``, for patches ``(groups, features, features)``, and
        its means are over all positions of a feature.

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


class Steps(Protocol):
    """Long work in steps, each of which depends on those before it."""

    def next(self, compute: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
        """The result of the next step: what ``compute`` gives, or gave in an earlier run of the same work."""


class Executor(Protocol):
    """Runs ONNX models. Everything is streamed: memory does not grow with the number of feeds."""

    def observe(
        self,
        model: onnx.ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: Callable[[int], None] | None = None,
    ) -> Mapping[Request, Statistics]:
        """Runs ``model`` on every feed and summarizes the requested tensors, bodies included.

        Args:
            model: the float model; it is not changed.
            requests: what to collect.
            data: the feeds; at least one.
            base_dir: the folder that external data of ``model`` is relative to.
            on_feeds: called now and then with the number of feeds that were done since the last call.

        Returns:
            Statistics by tensor and observation, in the order of :func:`asked_of`.

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

    def shapes(
        self,
        model: onnx.ModelProto,
        names: Sequence[str],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
    ) -> dict[str, tuple[int, ...]]:
        """The shapes that tensors of the main graph have on the first feed.

        Nothing if there is no feed, or if statistics are recorded for later compilations or are used instead
        of data: both must know the same.

        Raises:
            UsageError, DataError, ModelError: as for :meth:`observe`.
        """

    def segments(
        self, model: onnx.ModelProto, feeds: Sequence[Feed], *, base_dir: Path | None = None
    ) -> Segments:
        """Opens a model for methods that visit its layers one after the other; nothing is run yet.

        What layers that were not visited yet read is kept for all feeds.
        """

    def squared_error(self, array: np.ndarray, encoding: Encoding) -> np.ndarray:
        """For each scale of an integer grid, the sum of the squared rounding errors of its elements.

        Equals numpy's sum of ``(array - fake_quantize(array, encoding)) ** 2`` in float32 bit for bit.

        Args:
            array: finite float32 numbers.
            encoding: the grid, of at most 16 bits.

        Returns:
            float32, of the shape of the scale.

        Raises:
            UsageError: the grid does not fit the array, is no integer grid, or has more bits.
        """

    def steps(
        self,
        about: str,
        models: Callable[[], Sequence[onnx.ModelProto]],
        feeds: Sequence[Feed],
        *,
        base_dir: Path | None = None,
    ) -> Steps:
        """Opens long work whose results are kept where there is a cache, by all that they depend on.

        Args:
            about: what is done, with all options.
            models: gives the models that it is done on.
            feeds: the data that it is done on.

        Raises:
            UsageError: the folder of the cache cannot be used.
        """

    def gram(
        self, feeds: Sequence[Sequence[np.ndarray]], features: Observation, rows: int
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """The means of features, and of the products of each two, in arrays that are at hand.

        They depend neither on the number of threads nor on the processor.

        Args:
            feeds: for each one array or several, float32 and of one shape, that lie side by side: in each
                group the features of the first come first.
            features: an observation of a Gram matrix.
            rows: how many positions to look at, about; they are spread evenly if there are more.

        Returns:
            Float64, shapes ``(groups, arrays * features)`` and ``(groups, arrays * features, arrays *
            features)``; an axis without patches is one group. Then at how many positions was looked. None
            if there is no position.

        Raises:
            UsageError: an array has no such features, or those of a feed have several shapes.
            DataError: an array holds NaN or infinity.
        """

    def histogram_error(
        self, edges: np.ndarray, counts: np.ndarray, encoding: Encoding, clipping: float = 1.0
    ) -> np.ndarray:
        """The summed squared rounding and clipping error of integer grids of a whole tensor on its histogram.

        Values count as spread evenly within bins: the distance to the grid is piecewise linear, so its square
        integrates to a cubic in each piece. Bins much narrower than a step count as points, where the
        difference of integrals would cancel.

        Args:
            edges, counts: the histogram; ``bins + 1`` and ``bins`` elements.
            encoding: one grid, or several to compare, in a scale of any shape.
            clipping: the weight of errors beyond the outermost codes.

        Returns:
            The errors; float64, shape of the scale.
        """
