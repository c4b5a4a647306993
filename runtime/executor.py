"""The executor of ONNX Runtime: streams feeds through a model and adds up statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.errors import DataError
from qc.ir.executor import Feed, Observation

from .data import load_data
from .inputs import model_inputs
from .observe import ObserverOutputs, RangeOutputs, add_observers
from .parts import expose_tensors
from .protos import detach_weights
from .session import element_type, open_session, run_session
from .statistics import BINS, Ranges, TensorStatistics

OnStep = Callable[[int, int | None], None]


@dataclass(frozen=True)
class OrtExecutor:
    """Runs models with ONNX Runtime on the CPU. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        threads: threads within an op; None for one per physical core.
        optimize: whether ONNX Runtime may rewrite the graph; off, every node runs as it is written.
        allow_nonfinite: leave NaN and infinity out of the statistics instead of raising DataError.
        on_step: called after every feed with the number of feeds done and the number of all, if known.
    """

    threads: int | None = None
    optimize: bool = True
    allow_nonfinite: bool = False
    on_step: OnStep | None = None

    def observe(
        self,
        model: ModelProto,
        requests: Mapping[str, Observation],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
    ) -> dict[str, TensorStatistics]:
        """Runs ``model`` on every feed and summarizes the requested tensors; see the protocol.

        A constant is counted once for every feed, as any other tensor.
        """
        if not requests:
            return {}
        light, weights = detach_weights(model)
        observed, outputs = add_observers(light, requests)
        session = self._open(observed, weights, base_dir)
        sums = _Sums(outputs, strict=not self.allow_nonfinite)
        for index, results in enumerate(self._results(session, self._feeds(model, data), outputs.names())):
            sums.add(results, index)
        return {tensor: sums.result(tensor) for tensor in requests}

    def run(
        self,
        model: ModelProto,
        data: Iterable[Feed],
        outputs: Sequence[str] | None = None,
        *,
        base_dir: Path | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Runs ``model`` on one feed after the other, as the results are asked for; see the protocol.

        The model is loaded at once, so that a broken one raises here and not at the first result.
        """
        light, weights = detach_weights(model)
        if outputs is not None:
            light = expose_tensors(light, outputs)
        session = self._open(light, weights, base_dir)
        names = list(outputs) if outputs is not None else [output.name for output in model.graph.output]
        return self._results(session, self._feeds(model, data), names)

    def element_types(
        self, model: ModelProto, names: Sequence[str], *, base_dir: Path | None = None
    ) -> dict[str, int]:
        """Asks ONNX Runtime for the data types of tensors of the main graph; see the protocol."""
        light, weights = detach_weights(model)
        light = expose_tensors(light, names)
        weights = _present(light, weights)
        session = open_session(light, base_dir=base_dir, weights=weights, optimize=False, threads=1)
        found = {output.name: element_type(output.type) for output in session.get_outputs()}
        return {name: found[name] for name in names}

    def _open(
        self, model: ModelProto, weights: Mapping[str, np.ndarray], base_dir: Path | None
    ) -> ort.InferenceSession:
        return open_session(
            model,
            base_dir=base_dir,
            weights=_present(model, weights),
            optimize=self.optimize,
            threads=self.threads,
        )

    def _feeds(self, model: ModelProto, data: Iterable[Feed]) -> Iterator[Feed]:
        checked = load_data(data, model_inputs(model))
        for index, feed in enumerate(checked):
            yield feed
            if self.on_step is not None:
                self.on_step(index + 1, checked.length)

    def _results(
        self, session: ort.InferenceSession, feeds: Iterator[Feed], names: list[str]
    ) -> Iterator[dict[str, np.ndarray]]:
        # An optional input that nothing needs was cut off with its default; it may still be fed.
        known = {value.name for value in (*session.get_inputs(), *session.get_overridable_initializers())}
        for feed in feeds:
            accepted = {name: array for name, array in feed.items() if name in known}
            yield dict(zip(names, run_session(session, accepted, names), strict=True))


_NO_BINS = (np.zeros(0, np.uint16), np.zeros(0, np.int64))


class _Sums:
    """Adds up what the outputs of :func:`add_observers` say on each feed."""

    def __init__(self, outputs: ObserverOutputs, strict: bool) -> None:
        self._outputs = outputs
        self._strict = strict
        self._place = {tensor: place for place, tensor in enumerate(outputs.tensors)}
        self._packed = Ranges()
        self._channels = {tensor: Ranges() for tensor in outputs.channels}
        # Only the used bins, and their counts.
        self._bins: dict[str, tuple[np.ndarray, np.ndarray]] = dict.fromkeys(outputs.histograms, _NO_BINS)

    def add(self, results: dict[str, np.ndarray], feed: int) -> None:
        """Adds the results of feed number ``feed``, and takes the histograms out of them, which are large.

        Raises:
            DataError: NaN or infinity, if strict.
        """
        if self._outputs.tensors:
            self._add(self._packed, self._outputs.packed, results, self._outputs.tensors, feed)
        for tensor, names in self._outputs.channels.items():
            self._add(self._channels[tensor], names, results, (tensor,), feed)
        for tensor, name in self._outputs.histograms.items():
            histogram = results.pop(name)
            if histogram.size != BINS:
                continue  # the tensor is inside a body that did not run
            used, counts = self._bins[tensor]
            histogram[used] += counts
            used = np.flatnonzero(histogram).astype(np.uint16)
            self._bins[tensor] = used, histogram[used]

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
        bins = None
        if tensor in self._bins:
            used, counts = self._bins[tensor]
            bins = np.zeros(BINS, np.int64)
            bins[used] = counts
        if tensor in self._place:
            return self._packed.statistics(bins, self._place[tensor])
        return self._channels[tensor].statistics(bins)


def _present(model: ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights that ``model`` still has initializers for."""
    return {tensor.name: weights[tensor.name] for tensor in model.graph.initializer if tensor.name in weights}
