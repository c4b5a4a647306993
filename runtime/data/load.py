"""Calibration and evaluation data: many sources, one stream of checked feeds.

Sources
    ``file.npz``, or a dictionary of arrays
        One array per input, with all samples. How an array is cut depends on its rank against the input's:

        * one more: axis 0 counts the feeds, and each ``array[i]`` is fed as it is;
        * the same: axis 0 is the input's own first axis, and is cut into pieces as long as the model
          demands, or of length 1 where the model leaves it free;
        * one less: the array is a single sample without batch axis, which is put in front;
        * both are 0: the number goes into every feed.
    ``file.npy``, or an array
        The same for a model with one input.
    a folder of ``.npz`` files
        One feed per file; a missing batch axis of length 1 is put in front.
    a folder of ``.npy`` files, or of one folder of ``.npy`` files per input
        One feed per file (equal file names belong together), likewise. Files are taken in natural order.
    a folder as in ONNX's own tests
        ``input_0.pb``, ``input_1.pb`` and so on in the order of the graph's inputs, or a folder of
        ``test_data_set_*`` folders with such files.
    ``module:function`` or ``file.py:function``
        A function without arguments that returns any of the following. The current folder is searched.
    anything in Python
        An iterable of samples, an ONNX Runtime ``CalibrationDataReader``, or a function that returns one of
        these. A sample is a dictionary of arrays, an array for the only input, or a tuple of arrays in the
        order of the inputs, maybe with a label behind them, as a PyTorch ``DataLoader`` gives them. Whatever
        numpy or DLPack can view is an array.
    pictures
        A picture or a folder of them, with folders in it or without. :class:`DataFiles` says how they are
        prepared.
    text, audio and tables
        A ``.txt`` file with a sample on each line, or a folder with one in each; audio files; CSV, Parquet,
        or a data set of Hugging Face on disk, with a sample in each row. See :class:`DataFiles`, too.

What the model does not take, such as an array ``labels``, is left out if everything is there that it takes.
Types are not converted and shapes not changed unless :class:`DataFiles` asks for it: a feed either fits the
model or is refused with the reason. Files are read piece by piece, so that memory does not grow with the
number of samples.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from qc.ir.errors import DataError, UsageError, nearest
from qc.ir.executor import Feed

from .data_files import DataFiles
from .feeds import as_array, as_feed, is_array
from .files import file_source
from .inputs import (
    InputInfo,
    check_feed,
    free_dimensions,
    in_layout,
    the_only_input,
    with_stand_ins,
)
from .python import callable_source, iterable_source
from .source import Source, Unread, stacked_source

RANDOM_DATA = "random data"  # the origin of what random_data makes
_MOST_RANDOM = 1 << 27  # elements of one input, which are made in float64
_MOST_AXES = 64  # numpy has no more


class Share(NamedTuple):
    """Every ``step``-th feed, from feed ``start`` on."""

    start: int
    step: int


WHOLE = Share(0, 1)


class NumberedFeeds(Protocol):
    """Feeds that know their numbers in the whole data."""

    def numbered(self) -> Iterator[tuple[int, Feed]]:
        """The feeds with their numbers, which increase."""


class Data:
    """Feeds for a model, checked one by one as they are read; can be read any number of times.

    Reading raises DataError at the first feed that does not fit, when there is no feed at all, and when a
    source that can be read only once is read again.

    Attributes:
        inputs: the inputs the feeds are checked against.
        origin: where the feeds come from, in words.
        share: which of the feeds of the source these are.
        length: how many feeds there are, if that is known beforehand.
        unused: names in the data that the model does not take, as far as it was read.
    """

    def __init__(self, inputs: Sequence[InputInfo], source: Source, share: Share = WHOLE) -> None:
        self.inputs = tuple(inputs)
        self.source = source
        self.origin = source.origin
        self.share = share
        self.length = None if source.length is None else len(range(share.start, source.length, share.step))
        self.unused = dict.fromkeys(source.unused)
        self._is_transposed: bool | None = None  # whether the layout of the source moved anything so far

    @property
    def idle_layout(self) -> str | None:
        """The layout that arrays were to be transposed to, if none had to be, as far as was read."""
        return self.source.layout if self._is_transposed is False else None

    @property
    def is_read_once(self) -> bool:
        """Whether the feeds can be read a single time."""
        return self.source.is_read_once

    @property
    def labels(self) -> np.ndarray | None:
        """One for each of these feeds along the first axis, read now; None if the source has none."""
        read = self.source.labels
        return None if read is None else read()[self.share.start :: self.share.step]

    def __iter__(self) -> Iterator[Feed]:
        return (feed for _, feed in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Feed]]:
        """The feeds of this share with their numbers in the whole data, counted from 0."""
        number = -1
        for number, (place, feed) in enumerate(self.source.open()):
            if number % self.share.step == self.share.start:
                yield number, self._checked(feed, place)
        if number < 0:
            raise DataError(f"{self.origin}: there is no sample; give data with at least one")

    def _checked(self, sample: object, place: str) -> Feed:
        sample = sample.read() if isinstance(sample, Unread) else sample
        feed, unused = as_feed(sample, self.inputs, place)
        self.unused.update(dict.fromkeys(unused))
        if self.source.layout is not None and isinstance(feed, dict):
            feed = self._in_layout(feed, self.source.layout)
        feed = with_stand_ins(feed, self.inputs) if isinstance(feed, dict) else feed
        return check_feed(feed, self.inputs, place)

    def _in_layout(self, feed: Feed, layout: str) -> Feed:
        made = in_layout(feed, self.inputs, layout)
        is_idle = all(made[name] is feed[name] for name in feed)
        self._is_transposed = bool(self._is_transposed) or not is_idle
        return made

    def shard(self, index: int, count: int) -> Data:
        """Every ``count``-th of these feeds, from the one at ``index`` on; perhaps none.

        Raises:
            UsageError: ``index`` is not in the range of 0 to ``count - 1``.
        """
        if not 0 <= index < count:
            raise UsageError(f"there is no shard {index} of {count}; shards are counted from 0")
        share = Share(self.share.start + self.share.step * index, self.share.step * count)
        return Data(self.inputs, self.source, share)

    def __repr__(self) -> str:
        count = "an unknown number of" if self.length is None else str(self.length)
        return f"Data({self.origin}, {count} feeds)"


DataSource = (
    Data | DataFiles | str | Path | np.ndarray | Mapping[str, np.ndarray] | Iterable[Feed] | Callable[[], Any]
)


def load_data(source: DataSource | object, inputs: Sequence[InputInfo]) -> Data:
    """Makes data out of any supported source; see the module's text for what they are.

    Args:
        source: a path, ``module:function``, either of them in a :class:`DataFiles`, or something in Python.
        inputs: the inputs of the model, see :func:`qc.runtime.model_inputs`; those of a :class:`Data` that
            have a value keep it.

    Raises:
        DataError: there is no such file or function, or it holds nothing that could be data. Single feeds
            are checked only when they are read.
        UsageError: an option of a :class:`DataFiles` does not fit what it names.
    """
    if isinstance(source, Data):
        with_value = {info.name: info for info in source.inputs if info.value is not None}
        inputs = tuple(with_value.get(info.name, info) for info in inputs)
        return source if source.inputs == inputs else Data(inputs, source.source, source.share)
    return Data(inputs, _find_source(source, inputs))


def _find_source(source: Any, inputs: Sequence[InputInfo]) -> Source:
    if isinstance(source, (str, Path, DataFiles)):
        return file_source(source if isinstance(source, DataFiles) else DataFiles(source), inputs)
    origin = "the given arrays"
    if hasattr(source, "get_next"):
        return iterable_source(source, "the given data")
    if isinstance(source, Mapping):
        arrays = {name: as_array(array, f"{origin}: input '{name}'") for name, array in source.items()}
        return stacked_source(origin, arrays, inputs)
    if is_array(source):
        return stacked_source(origin, {the_only_input(inputs, origin).name: as_array(source, origin)}, inputs)
    if callable(source):
        return callable_source(source, f"'{getattr(source, '__name__', 'the given function')}'")
    return iterable_source(source, "the given data")


def random_data(
    inputs: Sequence[InputInfo],
    samples: int,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> Data:
    """Random feeds, the same for the same seed. Fit for timing and smoke tests; ranges are meaningless.

    Floats are standard normal; integers are 0 or 1, which every embedding and mask accepts. Inputs with a
    default keep it.

    Args:
        inputs: the inputs of the model.
        samples: the number of feeds, at least 1.
        seed: of numpy's default generator.
        sizes: lengths of free dimensions, by their name or as ``input[axis]``; a free first dimension that is
            not among them has length 1.

    Raises:
        DataError: ``samples`` is below 1, lengths of free dimensions are not known, ``sizes`` names what is
            none, or an input takes something else than numbers.
    """
    if samples < 1:
        raise DataError(f"random data needs at least 1 sample, not {samples}")
    fed = [info for info in inputs if not info.optional]
    lengths = _free_lengths(fed, sizes or {})
    shapes = {info.name: _random_shape(info, lengths) for info in fed}
    dtypes = {info.name: info.dtype for info in inputs}

    def feeds() -> Iterator[tuple[str, Feed]]:
        generator = np.random.default_rng(seed)
        for index in range(samples):
            yield (
                f"{RANDOM_DATA}, feed {index}",
                {name: _random_array(generator, shape, dtypes[name]) for name, shape in shapes.items()},
            )

    return Data(inputs, Source(RANDOM_DATA, feeds, samples, skips=False))


def _free_lengths(inputs: Sequence[InputInfo], sizes: Mapping[str, int]) -> dict[str, int]:
    """The length of each free dimension, by ``input[axis]``."""
    for info in inputs:
        if info.dtype is None or info.shape is None:
            raise DataError(f"cannot make random data for the input '{info.name}' ({info}); give real data")
    free = free_dimensions(inputs)
    names = list(dict.fromkeys(free.values()))
    for size in sizes:
        if size not in free and size not in names:
            raise DataError(
                f"sizes names '{size}', which no input has{nearest(size, names)}; "
                f"free dimensions: {', '.join(names) or 'none'}"
            )
    defaults = {place: 1 for place in free if place.endswith("[0]")}
    lengths = {place: sizes.get(place, sizes.get(name, defaults.get(place))) for place, name in free.items()}
    missing = list(dict.fromkeys(free[place] for place, length in lengths.items() if length is None))
    if missing:
        flags = " ".join(f"--size {shlex.quote(f'{name}=N')}" for name in missing)
        python = ", ".join(f'"{name}": N' for name in missing)
        raise DataError(
            f"cannot make random data, as the model leaves lengths free: give {flags}, in Python "
            f"sizes={{{python}}}, or real data"
        )
    return {place: length for place, length in lengths.items() if length is not None}


def _random_shape(info: InputInfo, lengths: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(
        size if isinstance(size, int) else lengths[f"{info.name}[{axis}]"]
        for axis, size in enumerate(info.shape or ())
    )
    if math.prod(shape) > _MOST_RANDOM or len(shape) > _MOST_AXES:
        raise DataError(
            f"cannot make random data for the input '{info.name}' ({info}): it is too large; give real data"
        )
    return shape


def _random_array(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype | None
) -> np.ndarray:
    if dtype is not None and dtype.kind in "biu":
        return generator.integers(0, 2, shape).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)
