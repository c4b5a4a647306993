"""An open session that collects statistics: runs on one feed after the other and adds up what it says."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Sequence

import numpy as np
import onnxruntime as ort

from qc.ir.errors import DataError
from qc.ir.executor import Feed, Request

from ..native.kernels import add_counts
from ..observers.insert import Group
from ..sessions.open import accepted_by, run_session
from ..statistics.model import ModelStatistics
from ..statistics.tensor import BINS, RunningSums, TensorStatistics
from .device_sums import DeviceSums
from .fingerprint import feed_fingerprint

OnFeeds = Callable[[int], None]


class Observer:
    """Statistics of some tensors of a model, growing with every feed."""

    def __init__(
        self,
        session: ort.InferenceSession,
        groups: Sequence[Group],
        requests: Sequence[Request],
        strict: bool,
        identify: bool,
        carried: Sequence[str] = (),
    ) -> None:
        """Takes over a session of a model made by :func:`add_observers`.

        Args:
            groups: where the model leaves what was requested.
            requests: the requests in the order of the results.
            strict: whether NaN and infinity are errors.
            identify: whether to keep the fingerprints of the feeds.
            carried: the outputs with histograms that stay on the device, see :func:`carry_histograms`.
        """
        self._session = session
        self._names = [name for group in groups for name in group.names.values()]
        self._requests = requests
        self._identify = identify
        self._feeds: list[tuple[int, int]] = []
        self._sums = _Sums(groups, strict)
        self._on_device = DeviceSums(session, carried) if carried else None

    def add(self, number: int, feed: Feed) -> None:
        """Runs the model on a feed; ``number`` counts the feeds of the whole data from 0.

        Raises:
            DataError, ModelError: as for :meth:`qc.ir.executor.Executor.observe`.
        """
        if self._on_device is not None:
            results = self._on_device.run(feed, self._names)
        else:
            results = run_on(self._session, feed, self._names)
        self._sums.add(results, number)
        if self._identify:
            self._feeds.append((number, feed_fingerprint(feed)))

    def statistics(self) -> ModelStatistics:
        """The statistics of all feeds so far."""
        if self._on_device is not None:
            self._sums.add_histograms(dict(self._on_device.take()))
        tensors = {request: self._sums.result(request) for request in self._requests}
        return ModelStatistics(tensors, np.array(self._feeds, np.uint64).reshape(-1, 2))


def run_on(session: ort.InferenceSession, feed: Feed, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Runs a session of a part of a model, which may have fewer inputs than the feed."""
    return dict(zip(names, run_session(session, accepted_by(session, feed), names), strict=True))


class _Sums:
    """Adds up what the outputs of :func:`add_observers` say on each feed."""

    def __init__(self, groups: Sequence[Group], strict: bool) -> None:
        self._strict = strict
        self._running = [
            (group, RunningSums(len(group.requests))) for group in groups if "histogram" not in group.names
        ]
        self._places = {
            request: (sums, place)
            for group, sums in self._running
            for place, request in enumerate(group.requests)
        }
        histograms = {
            group.requests[0]: group.names["histogram"] for group in groups if "histogram" in group.names
        }
        self._histograms = histograms
        self._bins = dict(zip(histograms, _zeros(len(histograms)), strict=True))

    def add(self, results: dict[str, np.ndarray], feed: int) -> None:
        """Adds the results of feed number ``feed``, and takes the large ones out of them.

        Raises:
            DataError: NaN or infinity, if strict.
        """
        for group, sums in self._running:
            found = {field: results.pop(name) for field, name in group.names.items()}
            bad = np.flatnonzero(found["nonfinite"])
            if self._strict and bad.size:
                tensor, number = group.requests[bad[0]][0], found["nonfinite"][bad[0]]
                raise DataError(
                    f"tensor '{tensor}' holds {number} NaN or infinite values on feed {feed}; "
                    "remove that sample or mend the model"
                )
            sums.add(found)
        self.add_histograms(results)

    def add_histograms(self, results: dict[str, np.ndarray]) -> None:
        """Adds histograms, and takes them out of the results; those that stay on the device come later."""
        for request, name in self._histograms.items():
            histogram = results.pop(name, None)
            if histogram is None:
                continue
            if histogram.ndim == 2:
                add_counts(histogram, self._bins[request])
            elif histogram.size == BINS:  # from a body or a GPU; otherwise from a body that did not run
                self._bins[request] += histogram

    def result(self, request: Request) -> TensorStatistics:
        """The statistics of one request over all feeds."""
        sums, place = self._places[request]
        return sums.statistics(request[1], place, self._bins.get(request))


def _zeros(histograms: int) -> np.ndarray:
    """Empty histograms, int64 ``(histograms, 65536)``, that take memory only around the bins in use.

    The system gives memory to a private mapping page by page when it is written to; to a shared one also when
    it is read.
    """
    if not histograms:
        return np.zeros((0, BINS), np.int64)
    size = histograms * BINS * np.dtype(np.int64).itemsize
    if not hasattr(mmap, "MAP_PRIVATE"):  # on Windows
        return np.frombuffer(mmap.mmap(-1, size), np.int64).reshape(histograms, BINS)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # of a system that has no huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int64).reshape(histograms, BINS)
