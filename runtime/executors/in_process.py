"""The executor of ONNX Runtime: streams feeds through a model and adds up statistics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.executor import Feed, Observation, Request, Requests, Steps, asked_of
from qc.ir.quant.spec import Encoding

from ..data.inputs import model_inputs
from ..data.load import NumberedFeeds, load_data
from ..native import kernels
from ..observers.insert import add_observers
from ..protos.detach import ModelParts, detach_weights
from ..protos.parts import expose_tensors, with_shape_ops
from ..sessions.open import element_type, open_session
from ..sessions.providers import choose_provider
from ..statistics.model import ModelStatistics
from .budget import bytes_of, features_of, split_by_memory
from .checkpoints import Checkpoints, OnNote, cache_key
from .device_sums import carry_histograms
from .gram import gram_of
from .observer import Observer, OnFeeds, run_on
from .segments import SegmentRunner
from .steps import ForgottenSteps, KeptSteps, steps_key


@dataclass(frozen=True)
class OrtExecutor:
    """Runs models with ONNX Runtime. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        threads: threads within an op; None for one per physical core.
        optimize: whether ONNX Runtime may rewrite the graph; off, every node runs as it is written.
        allow_nonfinite: leave NaN and infinity out of the statistics instead of raising DataError.
        provider: where models run: "cpu", "cuda" or "auto"; see :func:`qc.runtime.open_session`.
        identify_feeds: let statistics say which feeds are in them, so that none is merged in twice.
        cache: a folder for statistics, with which calibration goes on where it was killed, and is not done
            again for the same model, data and tensors; see :mod:`qc.runtime.executors.checkpoints`.
        memory: about how many bytes statistics may take while they are collected; where they need more, the
            data are read several times. None for no limit. A request that alone needs more gets it.
        on_note: called with a sentence for the user, such as that a file of the cache is damaged.
    """

    threads: int | None = None
    optimize: bool = True
    allow_nonfinite: bool = False
    provider: str = "cpu"
    identify_feeds: bool = False
    cache: str | Path | None = None
    memory: int | None = None
    on_note: OnNote | None = None

    def observe(
        self,
        model: ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> ModelStatistics:
        """Runs ``model`` on every feed and summarizes the requested tensors; see the protocol.

        A constant is counted once for every feed, as any other tensor.
        """
        asked = asked_of(requests)
        if not asked:
            return ModelStatistics({})
        parts = ModelParts.of(model, base_dir)
        return self.observe_parts(parts, asked, load_data(data, model_inputs(model)), on_feeds)

    def observe_parts(
        self,
        model: ModelParts,
        requests: Sequence[Request],
        data: NumberedFeeds,
        on_feeds: OnFeeds | None = None,
    ) -> ModelStatistics:
        """Like :meth:`observe`, of a model that was taken apart to be sent elsewhere."""
        *first, last = [requests] if self.memory is None else self._passes(model, requests, data, self.memory)
        found = [self._observe_once(model, part, data, None) for part in first]
        found.append(self._observe_once(model, last, data, on_feeds))
        together = reduce(ModelStatistics.beside, found)
        return replace(together, tensors={request: together[request] for request in requests})

    def _observe_once(
        self, model: ModelParts, requests: Sequence[Request], data: NumberedFeeds, on_feeds: OnFeeds | None
    ) -> ModelStatistics:
        if self.cache is None:
            observer = self.observer(model, requests)
            for number, feed in data.numbered():
                observer.add(number, feed)
                if on_feeds is not None:
                    on_feeds(1)
            return observer.statistics()
        key = cache_key(model, requests, self.optimize, self.allow_nonfinite, choose_provider(self.provider))
        checkpoints = Checkpoints(self.cache, key, self.on_note)
        return checkpoints.observe(lambda: self.observer(model, requests), data, on_feeds)

    def _passes(
        self, model: ModelParts, requests: Sequence[Request], data: NumberedFeeds, memory: int
    ) -> list[list[Request]]:
        """The requests of each pass; how large Gram matrices are is seen on the first feed."""
        features = {request: features_of(request) for request in requests if request[1].kind == "gram"}
        sizes: dict[Request, int] = {}
        if features:
            observer = self.observer(model, list(dict.fromkeys(features.values())))
            for number, feed in islice(data.numbered(), 1):
                observer.add(number, feed)
            seen = observer.statistics()
            sizes = {request: seen[asked].minimum.size for request, asked in features.items()}
        return split_by_memory({one: bytes_of(one[1], sizes.get(one, 1)) for one in requests}, memory)

    def observer(self, model: ModelParts, requests: Sequence[Request]) -> Observer:
        """A session that collects what is requested, on one feed after the other.

        Raises:
            UsageError, ModelError: as for :meth:`observe`.
        """
        observed, groups = add_observers(model.light, requests)
        on_gpu = choose_provider(self.provider) == "cuda"
        histograms = [group.names["histogram"] for group in groups if "histogram" in group.names]
        carried = histograms if on_gpu else []  # else they would be copied every time
        if carried:
            carry_histograms(observed, carried)
        session = self._open(observed, model.weights, model.base_dir, in_listed_order=True)
        identify = self.identify_feeds or self.cache is not None
        return Observer(session, groups, requests, not self.allow_nonfinite, identify, carried)

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
        return self._results(session, load_data(data, model_inputs(model)), names)

    def segments(
        self, model: ModelProto, feeds: Sequence[Feed], *, base_dir: Path | None = None
    ) -> SegmentRunner:
        """A model to be run piece by piece; see the protocol."""
        loaded = list(load_data(feeds, model_inputs(model)))
        provider = choose_provider(self.provider)
        return SegmentRunner(model, loaded, base_dir=base_dir, provider=provider, threads=self.threads)

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

    def shapes(
        self, model: ModelProto, names: Sequence[str], data: Iterable[Feed], *, base_dir: Path | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Runs the model on the first feed, with a Shape op behind each tensor; see the protocol."""
        first = next(iter(load_data(data, model_inputs(model))), None)
        if first is None:
            return {}
        light, weights = detach_weights(model)
        light, outputs = with_shape_ops(light, names)
        session = self._open(light, weights, base_dir)
        found = run_on(session, first, outputs)
        return {name: tuple(found[out].tolist()) for name, out in zip(names, outputs, strict=True)}

    def gram(
        self, feeds: Sequence[Sequence[np.ndarray]], features: Observation, rows: int
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """The Gram matrix of arrays; see the protocol."""
        return gram_of(feeds, features, rows, self.threads or os.cpu_count() or 1)

    def steps(
        self,
        about: str,
        models: Callable[[], Sequence[ModelProto]],
        feeds: Sequence[Feed],
        *,
        base_dir: Path | None = None,
    ) -> Steps:
        """Keeps results of steps in the folder of the cache, if there is one; see the protocol."""
        if self.cache is None:
            return ForgottenSteps()
        return KeptSteps(self.cache, steps_key(about, models(), feeds, base_dir), self.on_note)

    def squared_error(self, array: np.ndarray, encoding: Encoding) -> np.ndarray:
        """Sums of squared rounding errors for each scale; see the protocol."""
        return kernels.squared_error(array, encoding)

    def histogram_error(
        self, edges: np.ndarray, counts: np.ndarray, encoding: Encoding, clipping: float = 1.0
    ) -> np.ndarray:
        """Sums of squared errors of grids on a histogram; see the protocol."""
        return kernels.histogram_error(edges, counts, encoding, clipping)

    def _open(
        self,
        model: ModelProto,
        weights: Mapping[str, np.ndarray],
        base_dir: Path | None,
        in_listed_order: bool = False,
    ) -> ort.InferenceSession:
        return open_session(
            model,
            base_dir=base_dir,
            weights=_present(model, weights),
            optimize=self.optimize,
            threads=self.threads,
            provider=self.provider,
            in_listed_order=in_listed_order,
        )

    def _results(
        self, session: ort.InferenceSession, feeds: Iterable[Feed], names: list[str]
    ) -> Iterator[dict[str, np.ndarray]]:
        for feed in feeds:
            yield run_on(session, feed, names)


def _present(model: ModelProto, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights that ``model`` still has initializers for."""
    return {tensor.name: weights[tensor.name] for tensor in model.graph.initializer if tensor.name in weights}
