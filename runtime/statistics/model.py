"""Statistics of several tensors of a model together: merged, written to a file and read again."""

from __future__ import annotations

import json
import math
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.base.files import atomic_write
from qc.ir.errors import DataError, UsageError

from .tensor import TensorStatistics

_VERSION = 1


def _no_feeds() -> np.ndarray:
    return np.zeros((0, 2), np.uint64)


@dataclass(frozen=True, eq=False)
class ModelStatistics(Mapping[str, TensorStatistics]):
    """What was seen of the tensors of one model, by name.

    Attributes:
        tensors: the statistics of each tensor.
        feeds: uint64 ``(feeds, 2)``, the number and the fingerprint of each feed that is in them, in the
            order of the numbers; empty where feeds were not identified.
        model: the fingerprint of the model, see
            :func:`qc.runtime.executors.fingerprint.model_fingerprint`; or empty.
    """

    tensors: Mapping[str, TensorStatistics]
    feeds: np.ndarray = field(default_factory=_no_feeds)
    model: str = ""

    def __getitem__(self, name: str) -> TensorStatistics:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"<ModelStatistics of {len(self.tensors)} tensors on {len(self.feeds)} feeds>"

    @property
    def missing_feeds(self) -> int:
        """How many numbers of feeds below the highest are not in them: none in those of all the data."""
        numbers = np.unique(self.feeds[:, 0])
        return int(numbers[-1]) + 1 - len(numbers) if len(numbers) else 0

    def merge(self, other: ModelStatistics) -> ModelStatistics:
        """The statistics of both together: exact, and the same in any order but for the order of the names.

        Raises:
            UsageError: they are of different tensors or models, or a feed is in both.
        """
        if self.model != other.model:
            raise UsageError("statistics of different models, or of one after different passes, do not merge")
        for name in (*self.tensors, *other.tensors):
            if name not in self.tensors or name not in other.tensors:
                raise UsageError(f"statistics cannot be merged: only one of them has the tensor '{name}'")
        feeds = np.concatenate([self.feeds, other.feeds])
        feeds = feeds[np.lexsort((feeds[:, 1], feeds[:, 0]))]
        twice = np.flatnonzero((feeds[1:] == feeds[:-1]).all(1))
        if twice.size:
            raise UsageError(
                f"statistics cannot be merged: {twice.size} feeds are in both, the first is feed "
                f"{feeds[twice[0], 0]}; merge statistics of different shards, each once"
            )
        tensors = {name: one.merge(other.tensors[name]) for name, one in self.tensors.items()}
        return ModelStatistics(tensors, feeds, self.model)

    def save(self, path: str | Path) -> None:
        """Writes an ``.npz`` file, atomically and without pickled objects.

        Raises:
            UsageError: the file cannot be written.
        """
        fields: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        shapes = []
        for statistics in self.tensors.values():
            arrays = statistics.to_arrays()
            shapes.append({name: array.shape for name, array in arrays.items()})
            for name, array in arrays.items():
                fields[name].append(array.reshape(-1))
        about = {"version": _VERSION, "model": self.model, "names": list(self.tensors), "shapes": shapes}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        # One member for each field, since a member for each tensor and field takes long to write.
        columns: dict[str, Any] = {name: np.concatenate(parts) for name, parts in fields.items()}
        with atomic_write(path) as file:
            np.savez(file, about=text, identified_feeds=self.feeds, **columns)

    @classmethod
    def load(cls, path: str | Path) -> ModelStatistics:
        """Reads what :meth:`save` wrote; checksums in the file tell whether it is whole.

        Raises:
            DataError: there is no such file, it is damaged, or it holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                columns = {name: archive[name] for name in archive.files}
            about = json.loads(bytes(columns.pop("about")))
            if about["version"] != _VERSION:
                raise DataError(f"statistics '{path}' are of another version of qc; collect them again")
            return cls(_unpack(about, columns), columns["identified_feeds"].reshape(-1, 2), about["model"])
        except FileNotFoundError as error:
            raise DataError(f"statistics '{path}' do not exist; collect them with qc observe") from error
        except OSError as error:
            raise DataError(f"cannot read statistics '{path}': {error.strerror or error}") from error
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


def _unpack(about: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> dict[str, TensorStatistics]:
    starts = dict.fromkeys(columns, 0)
    tensors = {}
    for name, shapes in zip(about["names"], about["shapes"], strict=True):
        arrays = {}
        for column, shape in shapes.items():
            start, stop = starts[column], starts[column] + math.prod(shape)
            arrays[column] = columns[column][start:stop].reshape(shape)
            starts[column] = stop
        tensors[name] = TensorStatistics.from_arrays(arrays)
    return tensors
