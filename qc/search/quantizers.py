"""What becomes of a result when one of its quantizers is turned off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from qc.compilation import Compilation
from qc.compiled import Compiled
from qc.ir.errors import QcError
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant.spec import Quantizer
from qc.passes import PassContext, Pipeline, Progress, Stage, run_pipeline
from qc.runtime import Data, OrtExecutor

from .oracle import MetricOracle, Oracle, Outcome, Verdict

_RANKING_FEEDS = 2


@dataclass(frozen=True)
class QuantizerFacts:
    """What there is to know about a quantizer.

    Attributes:
        number: its id, as remarks and texts have it.
        sites: where it sits.
        spec: its format in words.
        scale, zero_point, minimum, maximum: its numbers and the range they reach, one for each channel or
            block; empty if it has none.
    """

    number: int
    sites: tuple[str, ...]
    spec: str
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    minimum: tuple[float, ...] = ()
    maximum: tuple[float, ...] = ()


@dataclass(frozen=True)
class Removal:
    """The verdict on a result without one quantizer."""

    quantizer: QuantizerFacts
    verdict: Verdict


class Removals:
    """Turns off the quantizers of one result, each for itself, and asks an oracle about the rest."""

    def __init__(self, whole: Compiled, compilation: Compilation, oracle: Oracle, data: Data | None) -> None:
        self._whole = whole
        self._compilation = compilation
        self._oracle = oracle
        self._data = data

    def facts(self, quantizer: Quantizer) -> QuantizerFacts:
        """Describes a quantizer of the result."""
        sites = tuple(str(site) for site in self._whole.ir.quant.sites_of(quantizer))
        encoding = quantizer.encoding
        if encoding is None:
            return QuantizerFacts(quantizer.id, sites, str(quantizer.spec))
        arrays = (encoding.scale, encoding.zero_point, encoding.minimum, encoding.maximum)
        return QuantizerFacts(
            quantizer.id, sites, str(quantizer.spec), *(tuple(array.ravel().tolist()) for array in arrays)
        )

    def judge(self, quantizer: Quantizer) -> Verdict:
        """The verdict on the result without ``quantizer``, all others on."""
        whole = self._whole
        passes = self._compilation.chosen_pipeline().pipeline.passes()
        lowering = Pipeline([step for step in passes if step.stage is Stage.LOWER])
        executor = self._compilation.ort_executor()
        context = PassContext(data=self._data, executor=executor, target=whole.target)
        with _turned_off(whole.ir, quantizer):
            try:
                run_pipeline(lowering, whole.ir, context)
                variant = replace(whole, artifacts=context.artifacts)
                return self._oracle.judge(variant, self._compilation, self._data)
            except QcError as error:
                return Verdict(Outcome.SKIP, str(error))

    def best(self, most: int, whole: Verdict, progress: Progress) -> tuple[Removal | None, int]:
        """The quantizer without which the result gains most, None if none helps, and how many were tried.

        Those whose own rounding error is largest, measured against their tensor, come first.

        Args:
            most: how many to try.
            whole: the verdict on the result with all quantizers.
        """
        assert isinstance(self._oracle, MetricOracle)
        metric = self._oracle.metric
        best, most_gained = None, 0.0
        candidates = self._worst_first()[:most]
        task = progress.start("turning off quantizers", len(candidates))
        for quantizer in candidates:
            verdict = self.judge(quantizer)
            if verdict.value is not None and whole.value is not None:
                gained = metric.gain(whole.value, verdict.value)
                if gained > most_gained:
                    best, most_gained = Removal(self.facts(quantizer), verdict), gained
            task.advance()
        task.finish()
        return best, len(candidates)

    def _worst_first(self) -> list[Quantizer]:
        """The quantizers with numbers by the ratio of rounding error to signal on their own tensors."""
        errors = _RoundingErrors(self._whole.ir)
        errors.add_constants()
        if self._data is not None:
            executor = self._compilation.ort_executor()
            errors.add_feeds(executor, self._data)
        quantizers = [q for q in self._whole.ir.quant.quantizers() if q.encoding is not None]
        return sorted(quantizers, key=lambda quantizer: (-errors.ratio(quantizer), quantizer.id))


@contextmanager
def _turned_off(model: Model, quantizer: Quantizer) -> Iterator[None]:
    """A block in which ``quantizer`` is at no site."""
    with model.transaction.trial():
        for site in model.quant.sites_of(quantizer):
            model.quant.remove(site, "turned off to see what it does")
        yield


class _RoundingErrors:
    """Sums of squares of tensors of the main graph, and of what rounding them to their grids changes."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._signal: dict[Quantizer, float] = {}
        self._noise: dict[Quantizer, float] = {}
        self._values: dict[Value, list[Quantizer]] = {}
        for site in model.quant.sites():
            quantizer = model.quant.get(site)
            if quantizer is not None and quantizer.encoding is not None:
                held = self._values.setdefault(site.value.original, [])
                held += [quantizer] if quantizer not in held else []

    def add_constants(self) -> None:
        """Adds the constants."""
        for value in self._values:
            if value.const is not None:
                self._add(value, value.const.numpy())

    def add_feeds(self, executor: OrtExecutor, data: Data) -> None:
        """Adds what the first feeds make of the other tensors of the main graph."""
        graph = self._model.graph
        named = {v.name: v for v in self._values if v.const is None and v.graph is graph}
        if not named:
            return
        feeds = list(islice(data, _RANKING_FEEDS))
        results = executor.run(lower(self._model), feeds, list(named), base_dir=self._model.base_dir)
        for arrays in results:
            for name, array in arrays.items():
                self._add(named[name], array)

    def _add(self, value: Value, array: np.ndarray) -> None:
        if array.dtype != np.float32:
            return
        for quantizer in self._values[value]:
            assert quantizer.encoding is not None
            error = array - fake_quantize(array, quantizer.encoding)
            self._signal[quantizer] = self._signal.get(quantizer, 0.0) + _energy(array)
            self._noise[quantizer] = self._noise.get(quantizer, 0.0) + _energy(error)

    def ratio(self, quantizer: Quantizer) -> float:
        """Noise to signal; 0 for a quantizer of which nothing was seen."""
        noise, signal = self._noise.get(quantizer, 0.0), self._signal.get(quantizer, 0.0)
        return noise / signal if signal else noise


def _energy(array: np.ndarray) -> float:
    return float(np.sum(np.square(array, dtype=np.float64)))
