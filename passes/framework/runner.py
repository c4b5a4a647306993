"""Runs a pipeline on a model: checks first, then pass by pass with timing, verification and blame."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from qc.ir.analysis import Lookups
from qc.ir.base.garbage import old_objects_spared
from qc.ir.base.shown import Shown
from qc.ir.errors import QcError, VerificationError
from qc.ir.journal import LimitReached

from .base import Pass, Stage
from .check import check_pipeline
from .context import PassContext
from .memory import resident_bytes
from .pipeline import Combinator, Pipeline, Step

if TYPE_CHECKING:
    from qc.ir.model import Model

    from .instruments import Instrument


@dataclass
class StepReport:
    """One step as it was executed; a step within a loop has one report for each round.

    Attributes:
        name: name of the pass or combinator.
        kind: ``pass`` or ``combinator``.
        text: its text form with options; for a combinator without the steps inside.
        depth: how many combinators it stands in.
        seconds: wall time of everything it caused, verification and inner steps included.
        self_seconds: wall time of its own work only.
        verify_seconds: wall time of the verification after it; 0 for a combinator.
        first_action: number of the first action that it could make.
        actions: number of actions that it, or the steps inside it, made.
        memory: bytes by which the memory of the process grew; 0 where the system does not tell.
        analyses: which analyses it, or the steps inside it, asked for, and how often each was computed.
    """

    name: str
    kind: str
    text: str
    depth: int
    seconds: float = 0.0
    self_seconds: float = 0.0
    verify_seconds: float = 0.0
    first_action: int = 0
    actions: int = 0
    memory: int = 0
    analyses: dict[str, Lookups] = field(default_factory=dict)


@dataclass(repr=False)
class PipelineReport(Shown):
    """What a run did: one entry per executed step, combinators before the steps inside them."""

    steps: list[StepReport] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<PipelineReport: {len(self.steps)} steps, {self.seconds:.1f} s>"

    @property
    def seconds(self) -> float:
        """Wall time of all steps."""
        return sum(step.seconds for step in self.steps if step.depth == 0)

    @property
    def actions(self) -> int:
        """Number of actions of all steps."""
        return sum(step.actions for step in self.steps if step.depth == 0)

    @property
    def analyses(self) -> dict[str, Lookups]:
        """The analyses that all steps asked for."""
        found: dict[str, Lookups] = {}
        for step in self.steps:
            if step.depth == 0:
                for name, count in step.analyses.items():
                    found[name] = found.get(name, Lookups()).plus(count)
        return found


def run_pipeline(
    pipeline: Pipeline, model: Model, context: PassContext, instruments: Sequence[Instrument] = ()
) -> PipelineReport:
    """Runs every step on ``model`` in place; what lowering passes make is in ``context.artifacts``.

    Args:
        instruments: what watches the passes.

    Raises:
        UsageError: stages out of order, something needed is missing (both before anything runs), or a
            fixpoint that does not settle.
        VerificationError: a pass broke the model or failed with an unexpected exception.
        QcError: whatever a pass has to say about the model or the data.
    """
    check_pipeline(pipeline, context)
    run = _Run(model, context, instruments)
    # Sums of numpy's products are rounded in another way for each number of threads.
    with old_objects_spared(), threadpool_limits(1, "blas"):
        run.verify_input()
        run.steps(pipeline.steps, depth=0)
    return run.report


@dataclass
class _Run:
    model: Model
    context: PassContext
    instruments: Sequence[Instrument]
    report: PipelineReport = field(default_factory=PipelineReport)

    def verify_input(self) -> None:
        """Verifies the model before the first pass, so that no pass is blamed for what it was given."""
        try:
            self._verify()
        except Exception as error:
            raise VerificationError(f"the model is broken before the first pass: {error}") from error

    def steps(self, steps: Sequence[Step], depth: int) -> None:
        for step in steps:
            self._step(step, depth)

    def _step(self, step: Step, depth: int) -> None:
        text = str(step) if isinstance(step, Pass) else step.head()
        entry = StepReport(step.name, step.kind, text, depth, first_action=self.model.action_count + 1)
        self.report.steps.append(entry)
        started, memory, asked = time.perf_counter(), resident_bytes(), self.model.analyses.counts
        if isinstance(step, Pass):
            self._pass(step, entry)
        else:
            self._combinator(step, entry)
        entry.seconds = time.perf_counter() - started
        entry.memory = resident_bytes() - memory
        entry.actions = self._actions_since(entry)
        entry.analyses = self.model.analyses.counts_since(asked)

    def _combinator(self, step: Combinator, entry: StepReport) -> None:
        begin = len(self.report.steps)

        def run_round() -> list[str]:
            start = len(self.report.steps)
            self.steps(step.steps, entry.depth + 1)
            done = self.report.steps[start:]
            return [report.name for report in done if report.kind == Pass.kind and report.actions]

        started = time.perf_counter()
        step.drive(run_round)
        inner = [report for report in self.report.steps[begin:] if report.depth == entry.depth + 1]
        entry.self_seconds = time.perf_counter() - started - sum(report.seconds for report in inner)

    def _pass(self, step: Pass, entry: StepReport) -> None:
        for instrument in self.instruments:
            instrument.before_pass(step, self.model)
        started = time.perf_counter()
        try:
            self._execute(step, entry)
            entry.self_seconds = time.perf_counter() - started
            self._verify_after(step, entry)
        except Exception as error:
            for instrument in self.instruments:
                instrument.failed(step, self.model, error)
            raise
        for instrument in self.instruments:
            instrument.after_pass(step, self.model)

    def _execute(self, step: Pass, entry: StepReport) -> None:
        journal = self.model.journal
        journal.pass_name = step.name
        if journal.stopped and step.stage != Stage.LOWER:
            return  # it can do nothing any more, and may not expect what a limit left half done
        if journal.stopped:
            self.model.quant.drop_open()
        try:
            step.run(self.model, self.context)
            self.context.check_left()
        except LimitReached:
            return
        except QcError:
            raise
        except Exception as error:
            raise self._blame(entry, f"failed with {type(error).__name__}: {error}") from error
        finally:
            journal.pass_name = ""

    def _verify_after(self, step: Pass, entry: StepReport) -> None:
        if step.stage == Stage.LOWER and self._actions_since(entry):
            raise self._blame(entry, "changed the model, which a lowering pass must leave alone")
        started = time.perf_counter()
        try:
            self._verify()
        except Exception as error:
            raise self._blame(entry, f"left the model broken: {error}") from error
        self._check_analyses(entry)
        entry.verify_seconds = time.perf_counter() - started

    def _verify(self) -> None:
        if self.context.verify is not None:
            self.context.verify(self.model)

    def _check_analyses(self, entry: StepReport) -> None:
        if self.context.check_analyses:
            try:
                self.model.analyses.check()
            except VerificationError as error:
                raise self._blame(entry, f"changed the model unseen: {error}") from error

    def _blame(self, entry: StepReport, words: str) -> VerificationError:
        """An error that names the pass and the actions it made."""
        last = self.model.action_count
        made = {0: "no action", 1: f"action {last}"}.get(
            self._actions_since(entry), f"actions {entry.first_action} to {last}"
        )
        return VerificationError(
            f"pass '{entry.name}' {words} (it made {made}); this is a defect of the pass"
        )

    def _actions_since(self, entry: StepReport) -> int:
        return self.model.action_count + 1 - entry.first_action
