"""A folder of statistics, kept while calibration goes on and found again by content.

A file holds the statistics of the first feeds of some data, for one model and one set of requests. It is
named by a digest of the model with its weights, the requests, the versions of qc and ONNX Runtime, and by the
first feed and its number, so that no two shards share one; the fingerprints of all its feeds are inside. So a
run that was killed goes on after the last checkpoint, a finished run is only read again, and one on more of
the same data does the rest. Each file takes the place of the one before it at once, and carries checksums.

A checkpoint is written after every feed, or, where that would take more than a twentieth of the time, after
as many feeds as it takes. These are what is done again after a kill, at most.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import onnxruntime as ort

from qc.ir.errors import DataError, UsageError, reason_of
from qc.ir.executor import Feed, Request

from ..data.load import NumberedFeeds
from ..protos.detach import ModelParts
from ..statistics.model import ModelStatistics, Recording
from .fingerprint import feed_fingerprint, model_fingerprint
from .observer import Observer, OnFeeds

OnNote = Callable[[str], None]
OpenObserver = Callable[[], Observer]

_WORK_PER_WRITING = 20  # seconds of collecting for each second of writing


def cache_key(
    model: ModelParts,
    requests: Sequence[Request],
    optimize: bool,
    allow_nonfinite: bool,
    provider: str,
) -> str:
    """A digest of all that statistics depend on, but for the data."""
    parts = (
        version("qc-onnx"),
        ort.__version__,
        optimize,
        allow_nonfinite,
        provider,
        model_fingerprint(*model),
        list(requests),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def made_folder(folder: str | Path) -> Path:
    """The folder of a cache, which is made if it is not there; raises UsageError if it cannot be."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot use the cache '{folder}': {reason_of(error)}") from error
    return folder


class Checkpoints:
    """Collects statistics with a file to fall back on."""

    def __init__(self, folder: str | Path, key: str, on_note: OnNote | None = None) -> None:
        """Uses, or makes, ``folder``.

        Raises:
            UsageError: the folder cannot be made.
        """
        self._folder = made_folder(folder)
        self._key = key
        self._note = on_note or (lambda note: None)

    def observe(
        self, open_observer: OpenObserver, data: NumberedFeeds, on_feeds: OnFeeds | None = None
    ) -> ModelStatistics:
        """The statistics of all feeds; opens an observer only if some feed is not in the file.

        Raises:
            DataError, ModelError, UsageError: as for :meth:`qc.ir.executor.Executor.observe`.
        """
        feeds = data.numbered()
        first = next(feeds, None)
        if first is None:
            return open_observer().statistics()
        path = self._folder / f"{self._key}-{first[0]}-{feed_fingerprint(first[1]):016x}.npz"
        run = _Run(path, self._load(path), open_observer, self._note)
        for number, feed in chain([first], feeds):
            if not run.add(number, feed):
                return self._observe_again(path, open_observer, data)
            if on_feeds is not None:
                on_feeds(1)
        if not run.is_past_stored:
            return self._observe_again(path, open_observer, data)
        return run.finish()

    def _load(self, path: Path) -> ModelStatistics | None:
        if not path.exists():
            return None
        try:
            return Recording.load(path).models[0]
        except DataError as error:
            self._note(f"a file of the cache cannot be used, so that calibration starts again: {error}")
            return None

    def _observe_again(self, path: Path, open_observer: OpenObserver, data: NumberedFeeds) -> ModelStatistics:
        """Observes all feeds, as those that are stored are others."""
        self._note(f"other data were calibrated on when '{path}' was written; calibration starts again")
        path.unlink(missing_ok=True)
        return self.observe(open_observer, data)


class _Run:
    """Statistics that begin with stored ones and grow with every further feed."""

    def __init__(
        self, path: Path, stored: ModelStatistics | None, open_observer: OpenObserver, on_note: OnNote
    ) -> None:
        self._path = path
        self._note = on_note
        self._stored = stored
        self._known = [] if stored is None else [tuple(mark) for mark in stored.feeds.tolist()]
        self._open_observer = open_observer
        self._observer: Observer | None = None
        self._passed = 0
        self._is_saved = True
        self._last = time.monotonic()
        self._cost = 0.0
        self._keeps = True

    @property
    def is_past_stored(self) -> bool:
        """Whether all stored feeds came."""
        return self._passed == len(self._known)

    def add(self, number: int, feed: Feed) -> bool:
        """Takes in the next feed; False if another one is stored in its place."""
        if not self.is_past_stored:
            self._passed += 1
            return self._known[self._passed - 1] == (number, feed_fingerprint(feed))
        if self._observer is None:
            self._observer = self._open_observer()
            self._last = time.monotonic()
        self._observer.add(number, feed)
        self._is_saved = False
        if self._keeps and time.monotonic() - self._last >= _WORK_PER_WRITING * self._cost:
            self._save()
        return True

    def finish(self) -> ModelStatistics:
        """The statistics of all feeds, which are in the file then if it can be written."""
        return self._save() if self._keeps and not self._is_saved else self._statistics()

    def _save(self) -> ModelStatistics:
        start = time.monotonic()
        statistics = self._statistics()
        try:
            Recording((statistics,)).save(self._path)
        except UsageError as error:
            self._note(f"{error}; the calibration goes on, and is not kept")
            self._keeps = False
        self._is_saved = True
        self._last = time.monotonic()
        self._cost = self._last - start
        return statistics

    def _statistics(self) -> ModelStatistics:
        if self._observer is None:
            assert self._stored is not None
            return self._stored
        new = self._observer.statistics()
        return new if self._stored is None else self._stored.merge(new)
