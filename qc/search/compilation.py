"""A compilation that can be done again, up to any action, and watched while it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from qc.compiled import Compiled
from qc.compiler import chosen_target, compile
from qc.ir.errors import QcError, VerificationError
from qc.ir.executor import Executor
from qc.ir.journal import Remark
from qc.ir.model import Model
from qc.ir.onnx.lift import load_model
from qc.named_pipelines import resolve_pipeline
from qc.passes import Instrument, Pass, Pipeline, PipelineFile, Progress
from qc.passes.framework.target import Target
from qc.runtime import OrtExecutor


@dataclass(frozen=True)
class Compilation:
    """What :func:`qc.compile` is given, kept so that it can be done again.

    Attributes:
        data: calibration data that can be read more than once.
        action_limit: number of the last action that may happen in any case.

    The others are as for :func:`qc.compile`; a search accepts a result in which nothing is quantized.
    """

    model: ModelProto | str | Path
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8"
    data: object = None
    target: str | Path | Target | None = None
    allow_unquantized: bool = True
    fail_if_unquantized: bool = False
    verify_each: bool = True
    check_analyses: bool = False
    threads: int | None = None
    device: str = "auto"
    action_limit: int | None = None
    seed: int = 0
    executor: Executor | None = None
    statistics: str | Path | None = None

    def compile(
        self,
        limit: int | None = None,
        instruments: Sequence[Instrument] = (),
        progress: Progress | None = None,
    ) -> Compiled:
        """Does it; raises what :func:`qc.compile` raises.

        Args:
            limit: number of the last action that may happen; None for that of the compilation.
            instruments: what watches the passes.
            progress: where long work shows how far it is.
        """
        return compile(
            self.model,
            self.pipeline,
            data=self.data,
            target=self.target,
            allow_unquantized=self.allow_unquantized,
            fail_if_unquantized=self.fail_if_unquantized,
            verify_each=self.verify_each,
            check_analyses=self.check_analyses,
            threads=self.threads,
            device=self.device,
            progress=progress,
            instruments=instruments,
            action_limit=self.action_limit if limit is None else limit,
            seed=self.seed,
            executor=self.executor,
            statistics=self.statistics,
        )

    def chosen_pipeline(self) -> PipelineFile:
        """The pipeline as an object."""
        return resolve_pipeline(self.pipeline)

    def chosen_target(self) -> Target:
        """The target as an object."""
        return chosen_target(self.target, self.chosen_pipeline())

    def ort_executor(self) -> OrtExecutor:
        """An executor in this process, with the settings of the compilation."""
        return OrtExecutor(threads=self.threads, provider=self.device)

    @property
    def reads_data(self) -> bool:
        """Whether a pass may read data."""
        needs = {need for step in self.chosen_pipeline().pipeline.passes() for need in step.needs}
        return not needs.isdisjoint({"data", "executor"})

    def proto(self) -> ModelProto:
        """The model, without its external data."""
        return self.model if isinstance(self.model, ModelProto) else load_model(self.model)

    @property
    def base_dir(self) -> Path | None:
        """The folder that external data of the model is relative to."""
        return None if isinstance(self.model, ModelProto) else Path(self.model).resolve().parent


class StoppedEarly(Exception):
    """A :class:`Watch` ended a pipeline after as many passes as it was to see."""


class Watch(Instrument):
    """Remembers where a compilation is, and can end it after a number of executed passes.

    Attributes:
        model: the model, once the first pass was about to begin.
        begun: how many passes began; a pass within a loop counts in every round.
        first_action: number of the first action that the last of them could make.
        failed_pass: the pass that failed, or left a broken model.
    """

    def __init__(self, stop_after: int | None = None) -> None:
        self._stop_after = stop_after
        self.model: Model | None = None
        self.begun = 0
        self.first_action = 1
        self.failed_pass: Pass | None = None

    def before_pass(self, step: Pass, model: Model) -> None:
        """Raises StoppedEarly if enough passes ran."""
        self.model = model
        if self.begun == self._stop_after:
            raise StoppedEarly
        self.begun += 1
        self.first_action = model.action_count + 1

    def failed(self, step: Pass, model: Model, error: Exception) -> None:
        """Remembers the pass."""
        self.failed_pass = step

    def actions(self) -> list[Remark]:
        """All actions, the one that an exception took back included."""
        if self.model is None:
            return []
        journal = self.model.journal
        actions, latest = journal.actions(), journal.latest
        taken_back = latest is not None and latest.number > len(actions)
        return [*actions, latest] if latest is not None and taken_back else actions


def is_defect(error: BaseException) -> bool:
    """Whether an error is the fault of qc or of a pass, and not of what was given to it."""
    if isinstance(error, QcError):
        return error.exit_code == VerificationError.exit_code
    from_the_system = isinstance(error, OSError) and bool(error.strerror)
    return isinstance(error, Exception) and not from_the_system


def sentence(error: BaseException) -> str:
    """An error on one line; one that was not foreseen with its type in front."""
    words = " ".join(str(error).split())
    if isinstance(error, QcError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
