"""A source of feeds, and the rule by which arrays that hold many samples are cut into feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from qc.ir.errors import DataError, a_type

from .data_files import DataFiles
from .inputs import InputInfo, check_names, the_only_input, unused_names

LABELS = ("labels", "label")  # names of what is no input but judged by


@dataclass(frozen=True)
class Source:
    """Where feeds come from.

    Attributes:
        origin: the source in words, for messages.
        open: starts reading from the beginning; yields each feed, unchecked, with its place in words; an
            :class:`Unread` stands for a feed in a file of its own.
        length: the number of feeds, if known.
        spec: what another process finds the same data by, if it can.
        layout: ``nchw`` or ``nhwc`` if arrays in the other layout are to be transposed.
        labels: reads one label for each feed, if there are any.
        unused: names of what is there besides and is no input of the model.
        skips: whether feeds that nobody wants cost little.
        is_read_once: whether it cannot be opened again.
    """

    origin: str
    open: Callable[[], Iterator[tuple[str, object]]]
    length: int | None
    spec: DataFiles | None = None
    layout: str | None = None
    labels: Callable[[], np.ndarray] | None = None
    unused: tuple[str, ...] = ()
    skips: bool = True
    is_read_once: bool = False


@dataclass(frozen=True)
class Unread:
    """A feed that is costly to read, and not read before somebody wants it."""

    read: Callable[[], object]


@runtime_checkable
class Rows(Protocol):
    """An array that can be read piece by piece along its first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""

    def whole(self) -> np.ndarray:
        """All of it."""

    def pieces(self, length: int) -> Iterator[np.ndarray]:
        """Consecutive pieces of ``length`` rows; ``length`` divides the number of rows."""


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows of an array in memory, or of a mapped file."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.array.shape

    def whole(self) -> np.ndarray:
        """The array itself."""
        return self.array

    def pieces(self, length: int) -> Iterator[np.ndarray]:
        """Consecutive pieces of ``length`` rows."""
        for start in range(0, len(self.array), length):
            yield np.asarray(self.array[start : start + length])


@dataclass(frozen=True)
class _Cut:
    """How one array becomes feeds.

    Attributes:
        count: number of feeds; None if the array goes into every feed as a whole.
        length: rows per feed; 0 if the whole array is used.
        drop_axis: whether the one row of a feed loses its first axis.
    """

    count: int | None
    length: int = 0
    drop_axis: bool = False


def stacked_source(origin: str, arrays: object, inputs: Sequence[InputInfo]) -> Source:
    """A source of arrays that hold all samples; the rule is in :mod:`qc.runtime.data.load`.

    Args:
        origin: the source in words.
        arrays: a numpy array for the only input, or arrays or :class:`Rows` by input name.
        inputs: the inputs of the model.

    Raises:
        DataError: names, ranks or numbers of samples do not fit the model or each other.
    """
    if isinstance(arrays, np.ndarray):
        arrays = {the_only_input(inputs, origin).name: arrays}
    assert isinstance(arrays, Mapping)
    rows: dict[str, Rows] = {}
    for name, array in arrays.items():
        if isinstance(array, np.ndarray):
            array = ArrayRows(array)
        if not isinstance(array, Rows):
            raise DataError(f"{origin}: input '{name}' must be a numpy array, got {a_type(array)}")
        rows[name] = array
    extras = {name: rows.pop(name) for name in unused_names(list(rows), inputs)}
    check_names(list(rows), inputs, origin)
    declared = {info.name: info for info in inputs}
    cuts = {name: _cut(array.shape, declared[name], origin) for name, array in rows.items()}
    count = _common_count(cuts, origin)

    def feeds() -> Iterator[tuple[str, object]]:
        streams = {name: _stream(array, cuts[name]) for name, array in rows.items()}
        for index in range(count):
            yield f"{origin}, feed {index}", {name: next(stream) for name, stream in streams.items()}

    labels = next((name for name in LABELS if name in extras), None)
    if labels is not None and extras[labels].shape[:1] != (count,):
        raise DataError(
            f"{origin}: '{labels}' has shape {extras[labels].shape}, and there are {count} samples to label"
        )
    read = extras.pop(labels).whole if labels is not None else None
    return Source(origin, feeds, count, labels=read, unused=tuple(extras))


def _cut(shape: tuple[int, ...], info: InputInfo, origin: str) -> _Cut:
    subject = f"{origin}: input '{info.name}'"
    if info.shape is None or len(shape) == len(info.shape) + 1:
        if not shape:
            return _Cut(None)
        return _Cut(shape[0], 1, drop_axis=True)
    if _lacks_batch_axis(shape, info):
        return _Cut(1)
    if len(shape) != len(info.shape):
        raise DataError(
            f"{subject} has shape {shape}, which is neither samples of {info} nor a stack of them"
        )
    if not shape:
        return _Cut(None)
    length = info.shape[0] if isinstance(info.shape[0], int) else 1
    if length == 0 or shape[0] % length:
        raise DataError(
            f"{subject} has {shape[0]} rows, which is no multiple of the {length} the model takes"
        )
    return _Cut(shape[0] // length, length)


def with_batch_axis(value: Any, info: InputInfo) -> Any:
    """A value of an input, with an axis of length 1 in front if it is an array that fits only so."""
    is_array = isinstance(value, np.ndarray)
    return value[np.newaxis] if is_array and _lacks_batch_axis(value.shape, info) else value


def _lacks_batch_axis(shape: tuple[int, ...], info: InputInfo) -> bool:
    """Whether an array of this shape fits the input if an axis of length 1 is put in front."""
    if info.shape is None or len(shape) != len(info.shape) - 1:
        return False
    return info.shape[0] == 1 or not isinstance(info.shape[0], int)


def _common_count(cuts: Mapping[str, _Cut], origin: str) -> int:
    counts = {name: cut.count for name, cut in cuts.items() if cut.count is not None}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise DataError(f"{origin}: the inputs have different numbers of samples: {listed}")
    return next(iter(counts.values()), 1)


def _stream(rows: Rows, cut: _Cut) -> Iterator[np.ndarray]:
    """The arrays of one input, feed by feed."""
    if cut.count is None:
        whole = rows.whole()
        while True:
            yield whole
    if cut.length == 0:
        yield rows.whole()[np.newaxis]
        return
    for piece in rows.pieces(cut.length):
        yield piece.reshape(piece.shape[1:]) if cut.drop_axis else piece
