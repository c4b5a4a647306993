"""An open session that collects statistics: runs on one feed after the other and adds up what it says."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from qc.ir.errors import DataError
from qc.ir.executor import Feed

from ..native.kernels import add_counts
from ..observers.insert import ObserverOutputs, RangeOutputs
from ..sessions.open import accepted_by, run_session
from ..statistics.exact_sum import ExactSum
from ..statistics.model import ModelStatistics
from ..statistics.tensor import BINS, Ranges, TensorStatistics
from .device_sums import DeviceSums
from .fingerprint import feed_fingerprint

OnFeeds = Callable[[int], None]

_NO_MOMENTS = (ExactSum.zero((1,)), ExactSum.zero((1,)))


class Observer:
    """Statistics of some tensors, growing with every feed."""

    def __init__(
        self,
        session: ort.InferenceSession,
        outputs: ObserverOutputs,
        tensors: Sequence[str],
        strict: bool,
        identify: bool,
        carried: Sequence[str] = (),
    ) -> None:
        """Takes over a session of a model made by :func:`add_observers`.

        Args:
            tensors: the tensors in the order of the results.
            strict: whether NaN and infinity are errors.
            identify: whether to keep the fingerprints of the feeds.
            carried: the outputs with histograms that stay on the device, see :func:`carry_histograms`.
        """
        self._session = session
        self._names = outputs.names()
        self._tensors = tensors
        self._identify = identify
        self._feeds: list[tuple[int, int]] = []
        self._sums = _Sums(outputs, strict)
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
        tensors = {tensor: self._sums.result(tensor) for tensor in self._tensors}
        return ModelStatistics(tensors, np.array(self._feeds, np.uint64).reshape(-1, 2))


def run_on(session: ort.InferenceSession, feed: Feed, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Runs a session of a part of a model, which may have fewer inputs than the feed."""
    return dict(zip(names, run_session(session, accepted_by(session, feed), names), strict=True))


class _Sums:
    """Adds up what the outputs of :func:`add_observers` say on each feed."""

    def __init__(self, outputs: ObserverOutputs, strict: bool) -> None:
        self._outputs = outputs
        self._strict = strict
        self._place = {tensor: place for place, tensor in enumerate(outputs.tensors)}
        self._packed = Ranges()
        self._channels = {tensor: Ranges() for tensor in outputs.channels}
        self._bins = dict(zip(outputs.histograms, _zeros(len(outputs.histograms)), strict=True))
        self._moments = dict.fromkeys(outputs.moments, _NO_MOMENTS)

    def add(self, results: dict[str, np.ndarray], feed: int) -> None:
        """Adds the results of feed number ``feed``, and takes the large ones out of them.

        Raises:
            DataError: NaN or infinity, if strict.
        """
        if self._outputs.tensors:
            self._add(self._packed, self._outputs.packed, results, self._outputs.tensors, feed)
        for tensor, names in self._outputs.channels.items():
            self._add(self._channels[tensor], names, results, (tensor,), feed)
        self.add_histograms(results)
        for tensor, moments in self._outputs.moments.items():
            sums, products = self._moments[tensor]
            # A body that did not run gives a single zero, which goes with sums of any shape.
            self._moments[tensor] = (
                sums.plus(results.pop(moments.sums)),
                products.plus(results.pop(moments.products)),
            )

    def add_histograms(self, results: dict[str, np.ndarray]) -> None:
        """Adds histograms, and takes them out of the results; those that stay on the device come later."""
        for tensor, name in self._outputs.histograms.items():
            histogram = results.pop(name, None)
            if histogram is None:
                continue
            if histogram.ndim == 2:
                add_counts(histogram, self._bins[tensor])
            elif histogram.size == BINS:  # from a body or a GPU; otherwise from a body that did not run
                self._bins[tensor] += histogram

    def _add(
        self,
        ranges: Ranges,
        names: RangeOutputs,
        results: Mapping[str, Any],
        tensors: Sequence[str],
        feed: int,
    ) -> None:
        nonfinite = results[names.nonfinite]
        if self._strict and nonfinite.any():
            first = int(np.flatnonzero(nonfinite)[0])
            raise DataError(
                f"tensor '{tensors[first]}' holds {nonfinite[first]} NaN or infinite values on feed {feed}; "
                "remove that sample or mend the model"
            )
        ranges.add(results[names.minimum], results[names.maximum], results[names.finite], nonfinite)

    def result(self, tensor: str) -> TensorStatistics:
        """The statistics of one tensor over all feeds."""
        bins = self._bins.get(tensor)
        moments = self._moments.get(tensor)
        if tensor in self._channels:
            return self._channels[tensor].statistics(bins, moments=moments)
        if moments is not None:  # of a whole tensor: one number, in an array
            moments = moments[0][0], moments[1][0]
        return self._packed.statistics(bins, self._place[tensor], moments)


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
