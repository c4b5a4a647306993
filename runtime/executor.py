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
from .observe import ObserverOutputs, add_observers, expose_tensors
from .session import detach_weights, element_type, open_session, run_session
from .statistics import Accumulator, TensorStatistics

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
        observed, places = add_observers(light, requests)
        session = self._open(observed, weights, base_dir)
        names = [name for group in places.values() for name in group.names()]
        sums = {tensor: Accumulator() for tensor in places}
        for index, results in enumerate(self._results(session, self._feeds(model, data), names)):
            for tensor, outputs in places.items():
                self._add(sums[tensor], outputs, results, tensor, index, requests[tensor])
        return {tensor: sums[tensor].result() for tensor in requests}

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

    def _add(
        self,
        total: Accumulator,
        outputs: ObserverOutputs,
        results: Mapping[str, Any],
        tensor: str,
        index: int,
        request: Observation,
    ) -> None:
        nonfinite = int(results[outputs.nonfinite][0])
        if nonfinite and not self.allow_nonfinite:
            raise DataError(
                f"tensor '{tensor}' holds {nonfinite} NaN or infinite values on feed {index}; "
                "remove that sample or mend the model"
            )
        shape = (-1,) if request.axis is not None else ()
        minimum = results[outputs.minimum].reshape(shape)
        maximum = results[outputs.maximum].reshape(shape)
        total.add_range(minimum, maximum, int(results[outputs.count][0]), nonfinite)
        if outputs.histogram is not None:
            total.add_bins(results[outputs.histogram])


def _present(model: ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights that ``model`` still has initializers for."""
    return {tensor.name: weights[tensor.name] for tensor in model.graph.initializer if tensor.name in weights}
