"""What becomes of a result when one of its quantizers is turned off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.errors import QcError
from qc.ir.quant.spec import Quantizer
from qc.passes import PassContext, Pipeline, Progress, Stage, run_pipeline
from qc.runtime import Data, Harm, OpenModel, Simulation, harm

from .oracle import EVALUATION_THREADS, MetricOracle, Oracle, OracleVerdict, Outcome, has_simulation

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
    verdict: OracleVerdict


@dataclass
class Removals:
    """Turns off the quantizers of one result, each for itself, and asks an oracle about the rest.

    A metric is measured in one session whose settings are changed. What a session cannot set, such as the
    grids of biases, and what other oracles judge, is lowered again without the quantizer.
    """

    whole: Compiled
    compilation: Compilation
    oracle: Oracle
    data: Data | None

    def facts(self, quantizer: Quantizer) -> QuantizerFacts:
        """Describes a quantizer of the result."""
        sites = tuple(str(site) for site in self.whole.ir.quant.sites_of(quantizer))
        held = quantizer.encoding
        arrays = (held.scale, held.zero_point, held.minimum, held.maximum) if held is not None else ()
        numbers = (tuple(array.ravel().tolist()) for array in arrays)
        return QuantizerFacts(quantizer.id, sites, str(quantizer.spec), *numbers)

    def judge(self, quantizer: Quantizer) -> OracleVerdict:
        """The verdict on the result without ``quantizer``, all others on."""
        try:
            if isinstance(self.oracle, MetricOracle) and self._is_settable(quantizer):
                return self.oracle.verdict(self._harm(self.oracle, [quantizer]).changed[quantizer])
            return self._judge_lowered(quantizer)
        except QcError as error:
            return OracleVerdict(Outcome.SKIP, str(error))

    def best(self, most: int, verdict: OracleVerdict, progress: Progress) -> tuple[Removal | None, int]:
        """The quantizer without which the result gains most, None if none helps, and how many were tried.

        If there are too many, those without which most is gained on two feeds come first.

        Args:
            most: how many to try.
            verdict: the one on the result with all quantizers.
        """
        oracle = self.oracle
        assert isinstance(oracle, MetricOracle)
        quantizers = [q for q in self.whole.ir.quant.quantizers() if q.encoding is not None]
        settable = [one for one in quantizers if self._is_settable(one)]
        others = [one for one in quantizers if one not in settable]
        if len(settable) > most:
            few = self._harm(oracle, settable, most_feeds=_RANKING_FEEDS)
            settable.sort(key=lambda one: -oracle.metric.gain(few.whole, few.changed[one]))
        settable, others = settable[:most], others[: max(most - len(settable), 0)]
        length = self.data.length if self.data is not None else None
        runs = None if length is None else (1 + len(settable)) * length + len(others)
        task = progress.start("turning off quantizers", runs)
        found = self._harm(oracle, settable, on_run=task.advance)
        gains = {one: oracle.metric.gain(found.whole, value) for one, value in found.changed.items()}
        verdicts = {one: oracle.verdict(value) for one, value in found.changed.items()}
        for one in others:
            verdicts[one] = self.judge(one)
            before, after = verdict.value, verdicts[one].value
            gains[one] = oracle.metric.gain(before, after) if before is not None and after is not None else 0
            task.advance()
        task.finish()
        best = max(gains, key=lambda one: (gains[one], -one.id), default=None)
        if best is None or gains[best] <= 0:
            return None, len(verdicts)
        return Removal(self.facts(best), verdicts[best]), len(verdicts)

    def _is_settable(self, quantizer: Quantizer) -> bool:
        return has_simulation(self.whole) and quantizer.name in self._simulation.quantizers

    @cached_property
    def _simulation(self) -> Simulation:
        device = self.compilation.device
        return self.whole.open_simulation(settable_weights=True, threads=EVALUATION_THREADS, device=device)

    @cached_property
    def _reference(self) -> OpenModel:
        model, base_dir = self.compilation.model, self.whole.ir.base_dir
        device = self.compilation.device
        return OpenModel(model, base_dir=base_dir, threads=EVALUATION_THREADS, provider=device)

    def _harm(
        self,
        oracle: MetricOracle,
        quantizers: Sequence[Quantizer],
        most_feeds: int | None = None,
        on_run: Callable[[], None] = lambda: None,
    ) -> Harm[Quantizer]:
        """The metric without each of some quantizers, in one session."""
        assert self.data is not None
        labels = oracle.labels if oracle.labels is None else oracle.labels[:most_feeds]
        return harm(
            self._simulation,
            {one: [one.name] for one in quantizers},
            oracle.metric,
            islice(self.data, most_feeds),
            reference=self._reference,
            labels=labels,
            on_run=on_run,
        )

    def _judge_lowered(self, quantizer: Quantizer) -> OracleVerdict:
        ir, compilation = self.whole.ir, self.compilation
        passes = compilation.chosen_pipeline().pipeline.passes()
        lowering = Pipeline([step for step in passes if step.stage is Stage.LOWER])
        context = PassContext(data=self.data, executor=compilation.ort_executor(), target=self.whole.target)
        with ir.transaction.trial():
            for site in ir.quant.sites_of(quantizer):
                ir.quant.remove(site, "turned off to see what it does")
            run_pipeline(lowering, ir, context)
            variant = replace(self.whole, artifacts=context.artifacts)
            return self.oracle.judge(variant, compilation, self.data)
