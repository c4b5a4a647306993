"""Statistics of several tensors of a model together, and what was recorded of models in a file."""

from __future__ import annotations

import json
import math
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.base.files import atomic_write
from qc.ir.errors import DataError, UsageError, reason_of
from qc.ir.executor import Observation, Patches, Request

from .tensor import TensorStatistics

_VERSION = 2


def _no_feeds() -> np.ndarray:
    return np.zeros((0, 2), np.uint64)


@dataclass(frozen=True, eq=False)
class ModelStatistics(Mapping[Request, TensorStatistics]):
    """What was seen of the tensors of one model, by tensor and observation.

    Attributes:
        tensors: the statistics.
        feeds: uint64 ``(feeds, 2)``, the number and the fingerprint of each feed that is in them, in the
            order of the numbers; empty where feeds were not identified.
        model: the fingerprint of the model, see
            :func:`qc.runtime.executors.fingerprint.model_fingerprint`; or empty.
    """

    tensors: Mapping[Request, TensorStatistics]
    feeds: np.ndarray = field(default_factory=_no_feeds)
    model: str = ""

    def __getitem__(self, key: Request) -> TensorStatistics:
        return self.tensors[key]

    def __iter__(self) -> Iterator[Request]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"<ModelStatistics of {len(self.tensors)} observations on {len(self.feeds)} feeds>"

    def merge(self, other: ModelStatistics) -> ModelStatistics:
        """The statistics of both together: exact, and the same in any order but for the order of the names.

        Raises:
            UsageError: they are of different tensors or models, or a feed is in both.
        """
        if self.model != other.model:
            raise UsageError("statistics of different models, or of one after different passes, do not merge")
        for key in (*self.tensors, *other.tensors):
            if key not in self.tensors or key not in other.tensors:
                raise UsageError(
                    f"statistics cannot be merged: only one of them has the {key[1].kind} of '{key[0]}'"
                )
        feeds = np.concatenate([self.feeds, other.feeds])
        feeds = feeds[np.lexsort((feeds[:, 1], feeds[:, 0]))]
        twice = np.flatnonzero((feeds[1:] == feeds[:-1]).all(1))
        if twice.size:
            raise UsageError(
                f"statistics cannot be merged: {twice.size} feeds are in both, the first is feed "
                f"{feeds[twice[0], 0]}; merge statistics of different shards, each once"
            )
        tensors = {key: one.merge(other.tensors[key]) for key, one in self.tensors.items()}
        return ModelStatistics(tensors, feeds, self.model)

    def beside(self, other: ModelStatistics) -> ModelStatistics:
        """These statistics and further ones of the same model and feeds.

        Raises:
            UsageError: the feeds are not the same.
        """
        _check_same_feeds(self.feeds, other.feeds)
        return ModelStatistics({**self.tensors, **other.tensors}, self.feeds, self.model)

    def answer(self, request: Request) -> TensorStatistics | None:
        """The statistics that hold what is requested; None if there are none."""
        if request in self.tensors:
            return self.tensors[request]
        tensor, asked = request
        return self._ranges.get((tensor, asked.axis)) if asked == Observation(axis=asked.axis) else None

    @cached_property
    def _ranges(self) -> dict[tuple[str, int | None], TensorStatistics]:
        """Statistics with the range of each tensor, as a whole or along an axis."""
        return {(name, kept.axis): one for (name, kept), one in self.items() if kept.patches is None}


@dataclass(frozen=True, eq=False)
class Recording:
    """Statistics of one model or several, such as a model before and after a pass: what a file holds.

    Attributes:
        models: the statistics of each, in the order in which they were collected.
    """

    models: tuple[ModelStatistics, ...] = ()

    def __repr__(self) -> str:
        return f"<Recording of {', '.join(map(repr, self.models))}>"

    @property
    def feeds(self) -> np.ndarray:
        """The number and the fingerprint of each feed, uint64 ``(feeds, 2)``."""
        return self.models[0].feeds if self.models else _no_feeds()

    @property
    def tensors(self) -> int:
        """How many tensors of all models were observed."""
        return sum(len({name for name, _ in statistics}) for statistics in self.models)

    @property
    def missing_feeds(self) -> int:
        """How many numbers of feeds below the highest are not in them: none in those of all the data."""
        numbers = np.unique(self.feeds[:, 0])
        return int(numbers[-1]) + 1 - len(numbers) if len(numbers) else 0

    def of(self, model: str) -> ModelStatistics | None:
        """The statistics of the model with a fingerprint; None if there are none."""
        return next((statistics for statistics in self.models if statistics.model == model), None)

    def plus(self, statistics: ModelStatistics) -> Recording:
        """This recording with further statistics, of one of its models or of another one.

        Raises:
            UsageError: they are of other feeds.
        """
        if self.models:
            _check_same_feeds(self.feeds, statistics.feeds)
        known = self.of(statistics.model)
        if known is None:
            return Recording((*self.models, statistics))
        grown = known.beside(statistics)
        return Recording(tuple(grown if one is known else one for one in self.models))

    def merge(self, other: Recording) -> Recording:
        """The statistics of both together, as of one run; exact and the same in any order.

        Raises:
            UsageError: as for :meth:`ModelStatistics.merge`.
        """
        if len(self.models) != len(other.models):
            raise UsageError("statistics of different models, or of one after different passes, do not merge")
        pairs = zip(self.models, other.models, strict=True)
        return Recording(tuple(one.merge(another) for one, another in pairs))

    def save(self, path: str | Path) -> None:
        """Writes an ``.npz`` file, atomically and without pickled objects.

        Raises:
            UsageError: the file cannot be written.
        """
        fields: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        models = []
        for statistics in self.models:
            rows = []
            for (name, observation), one in statistics.items():
                arrays = one.to_arrays()
                rows.append([name, asdict(observation), {key: array.shape for key, array in arrays.items()}])
                for key, array in arrays.items():
                    fields[key].append(array.reshape(-1))
            models.append({"model": statistics.model, "tensors": rows})
        text = np.frombuffer(json.dumps({"version": _VERSION, "models": models}).encode(), np.uint8)
        # One member for each field, since a member for each tensor and field takes long to write.
        columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in fields.items()}
        with atomic_write(path) as file:
            np.savez(file, about=text, identified_feeds=self.feeds, **columns)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Reads what :meth:`save` wrote; checksums in the file tell whether it is whole.

        Raises:
            DataError: there is no such file, it is damaged, or it holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                columns = {name: archive[name] for name in archive.files}
            about = json.loads(bytes(columns.pop("about")))
            if about["version"] == 1:
                about = _of_version_1(about, path)
            if about["version"] != _VERSION:
                raise DataError(f"statistics '{path}' are of another version of qc; collect them again")
            feeds = columns.pop("identified_feeds").reshape(-1, 2)
            read = _Columns(columns)
            return cls(
                tuple(
                    ModelStatistics(read.tensors(model["tensors"]), feeds, model["model"])
                    for model in about["models"]
                )
            )
        except FileNotFoundError as error:
            raise DataError(f"statistics '{path}' do not exist; collect them with qc observe") from error
        except OSError as error:
            raise DataError(f"cannot read statistics '{path}': {reason_of(error)}") from error
        except _DAMAGES as error:
            raise DataError(
                f"'{path}' holds no statistics, or is damaged; collect them with qc observe"
            ) from error


_DAMAGES = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
)


def _check_same_feeds(first: np.ndarray, second: np.ndarray) -> None:
    if not np.array_equal(first, second):
        raise UsageError("the data are not the same each time they are read; give data that stay the same")


def _of_version_1(about: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """The header of an older file, which held whole tensors, with histograms or without, of one model."""
    rows = []
    for name, shapes in zip(about["names"], about["shapes"], strict=True):
        if shapes["minimum"] or "sums_top" in shapes:
            raise DataError(f"statistics '{path}' are of an older version of qc; collect them again")
        rows.append([name, {"kind": "histogram" if "ranks" in shapes else "range"}, shapes])
    return {"version": _VERSION, "models": [{"model": about["model"], "tensors": rows}]}


class _Columns:
    """Takes the arrays of one tensor after the other from the front of columns."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = columns
        self._starts = dict.fromkeys(columns, 0)

    def tensors(
        self, rows: list[tuple[str, dict[str, Any], dict[str, list[int]]]]
    ) -> dict[Request, TensorStatistics]:
        found = {}
        for name, described, shapes in rows:
            observation = _observation(**described)
            arrays = {key: self._take(key, shape) for key, shape in shapes.items()}
            found[name, observation] = TensorStatistics.from_arrays(observation, arrays)
        return found

    def _take(self, column: str, shape: list[int]) -> np.ndarray:
        start, stop = self._starts[column], self._starts[column] + math.prod(shape)
        self._starts[column] = stop
        return self._columns[column][start:stop].reshape(shape)


def _observation(patches: dict[str, Any] | None = None, **fields: Any) -> Observation:
    if patches is None:
        return Observation(**fields)
    lists: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in patches.items()
    }
    return Observation(**fields, patches=Patches(**lists))
