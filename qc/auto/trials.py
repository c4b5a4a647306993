"""Tries recipes, each at most once: in this process or ahead in others, and never again after a kill."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from onnx import ModelProto

from qc.checking import runs_here
from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.base.files import atomic_write, temporary_directory
from qc.ir.errors import QcError
from qc.passes import NullProgress, Pipeline, Progress, dumps
from qc.passes.optimize.round_weights import RoundWeights
from qc.runtime import process_pool
from qc.runtime.executors.checkpoints import made_folder

from .judging import Judge, Judgement
from .question import Question
from .recipes import Recipe
from .trial import Trial, trial_from, trial_of
from .watch import Deadline, OutOfTime

_PATIENCE = 30.0  # seconds that a step of a trial elsewhere may take beyond the time


@dataclass
class Bench:
    """Where recipes are compiled and judged.

    Attributes:
        compilation: what the recipes are for.
        judge: what tells whether a model is good enough.
        on_unseen: the question on a part of the samples, judged by the others; None if it is so anyway, or
            there are too few.
    """

    compilation: Compilation
    judge: Judge
    on_unseen: Question | None = None

    def compile(self, recipe: Recipe, watch: Deadline) -> Compiled:
        """What a recipe makes; raises what :meth:`qc.Compilation.compile` raises, and OutOfTime."""
        compilation = replace(self.compilation, pipeline=recipe.pipeline, precision=recipe.rules)
        return replace(compilation, progress=watch, instruments=(watch,)).compile()

    def trial(self, recipe: Recipe, watch: Deadline) -> tuple[Trial, Compiled]:
        """Compiles and judges; raises what the two raise, and OutOfTime.

        Codes of weights that are chosen on the samples by which they are judged look better than they are:
        what is accepted with them is compiled once more on a part of the samples and judged by the others,
        and refused if it certainly loses too much there.
        """
        start = time.monotonic()
        made = self.compile(recipe, watch)
        verdict = self._verdict(recipe, made, watch)
        if verdict.is_accepted and self._unseen is not None and _chooses_codes(recipe):
            there = self._unseen.trial(recipe, watch)[0].verdict
            verdict = there if there.drop - there.error > there.limit else verdict
        return trial_of(recipe, verdict, made, time.monotonic() - start), made

    @functools.cached_property
    def _unseen(self) -> Bench | None:
        if self.on_unseen is None:
            return None
        part = replace(self.compilation, data=self.on_unseen.compilation.data)
        return Bench(part, self.on_unseen.judge())

    def _verdict(self, recipe: Recipe, made: Compiled, watch: Deadline) -> Judgement:
        task = watch.start(f"judging {recipe.name}", self.judge.samples)
        verdict = self.judge(self._judged(made), task.advance)
        task.finish()
        return verdict

    def _judged(self, made: Compiled) -> ModelProto:
        """The model as it will run, or its simulation if that is on a device that is not at hand."""
        runs = self.judge.device is not None or runs_here(made.target)
        return made.model if runs or "qdq" not in made.artifacts else made.device_simulation


def _chooses_codes(recipe: Recipe) -> bool:
    return any(isinstance(step, RoundWeights) for step in recipe.pipeline.pipeline.passes())


@dataclass
class Trials:
    """The trials of one search; a context manager.

    Whatever a trial has to collect or to search for lies in the folder, by what it depends on: other trials,
    here and in other processes, and later runs find it there. So results depend on none of them.

    Attributes:
        question: what is asked.
        judge: of the question, in this process.
        jobs: how many recipes are tried at once.
        pool: where: any ``concurrent.futures.Executor``, such as Dask's; None for new processes, or for this
            process if there is one job.
        cache: the folder; None for one that goes at the end.
        progress: where work in this process shows how far it is.
        deadline: the time, as of :func:`time.time`, after which nothing goes on once something was found.
    """

    question: Question
    judge: Judge
    jobs: int = 1
    pool: Pool | None = None
    cache: Path | None = None
    progress: Progress = field(default_factory=NullProgress)
    deadline: float | None = None

    def __post_init__(self) -> None:
        self._temporary = temporary_directory()
        own = Path(self._temporary.name)
        self._stops = made_folder(own / "stops")
        self._folder = made_folder(self.cache if self.cache is not None else own / "cache")
        self._digest = self.question.digest() if self.cache is not None else None
        compilation = self.question.compilation
        executor = compilation.executor or compilation.ort_executor(cache=self._folder)
        self._bench = Bench(replace(compilation, executor=executor), self.judge, self.question.on_unseen())
        self._made: dict[Recipe, Compiled] = {}
        self._ahead: dict[Recipe, tuple[Future[Trial], Path]] = {}
        self._own_pool: Pool | None = None
        self._payload = b""

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop_ahead()
        if self._own_pool is not None:
            self._own_pool.shutdown(wait=kind is None, cancel_futures=True)
        self._temporary.cleanup()

    def watch(self, may_be_late: bool = False) -> Deadline:
        """The clock for work in this process, which may go on after the time if nothing was found yet."""
        return Deadline(None if may_be_late else self.deadline, None, self.progress)

    def expect(self, recipes: Sequence[Recipe]) -> None:
        """Begins to try recipes that may be asked for, as many at once as there are jobs, and ends others."""
        if self.jobs < 2 and self.pool is None:
            return
        self._drop([recipe for recipe in self._ahead if recipe not in recipes])
        for recipe in recipes:
            busy = sum(not future.done() for future, _ in self._ahead.values())
            if busy >= self.jobs:
                return
            if recipe not in self._ahead and self._kept(recipe) is None:
                self._begin(recipe, may_be_late=False)

    def drop_ahead(self) -> None:
        """Ends what was begun and nobody asked for."""
        self._drop(list(self._ahead))

    def result(self, recipe: Recipe, may_be_late: bool = False) -> Trial:
        """The trial of a recipe, from the folder if it was done before.

        Args:
            may_be_late: whether it goes on when the time is over, as nothing was found yet.

        Raises:
            OutOfTime: the time is over.
            QcError: what compiling or judging raises.
        """
        found = self._kept(recipe)
        if found is not None:
            return found
        if self.jobs < 2 and self.pool is None:
            found, self._made[recipe] = self._bench.trial(recipe, self.watch(may_be_late))
        else:
            if recipe not in self._ahead:
                self._begin(recipe, may_be_late)
            found = self._awaited(recipe, may_be_late)
        self._keep(found)
        return found

    def compiled(self, recipe: Recipe) -> Compiled:
        """What a recipe made; compiled again, from what was kept on the way, if that was done elsewhere."""
        if recipe not in self._made:
            self._made[recipe] = self._bench.compile(recipe, self.watch(may_be_late=True))
        return self._made[recipe]

    def sketch(self, recipe: Recipe) -> Compiled:
        """What a recipe makes with the nearest codes of weights, to be timed: codes change no time."""
        steps = [step for step in recipe.pipeline.pipeline.steps if not isinstance(step, RoundWeights)]
        pipeline = replace(recipe.pipeline, pipeline=Pipeline(steps))
        return self._bench.compile(replace(recipe, pipeline=pipeline), self.watch())

    def forget_but(self, recipe: Recipe) -> None:
        """Lets go what other recipes made."""
        self._made = {one: made for one, made in self._made.items() if one == recipe}

    def _drop(self, recipes: Sequence[Recipe]) -> None:
        for recipe in recipes:
            future, stop = self._ahead.pop(recipe)
            future.cancel()
            stop.touch()

    # -- in other processes ---------------------------------------------------------------------------------

    def _begin(self, recipe: Recipe, may_be_late: bool) -> None:
        if not self._payload:
            own = self.question.compilation.threads
            threads = own if own is not None or self.pool is not None else _share_of_cores(self.jobs)
            metric = self.question.metric if self.question.metric is not None else self.judge.metric
            self._payload = replace(self.question, metric=metric).packed(threads)
        if self.pool is None and self._own_pool is None:
            self._own_pool = process_pool(self.jobs)
        pool = self.pool or self._own_pool
        assert pool is not None
        stop = self._stops / str(len(self._ahead) + time.monotonic_ns())
        deadline = None if may_be_late else self.deadline
        future = pool.submit(_try_elsewhere, self._payload, self._folder, recipe, deadline, stop)
        self._ahead[recipe] = future, stop

    def _awaited(self, recipe: Recipe, may_be_late: bool) -> Trial:
        future, stop = self._ahead.pop(recipe)
        left = None
        if not may_be_late and self.deadline is not None:
            left = min(self.deadline + _PATIENCE - time.time(), threading.TIMEOUT_MAX)
        try:
            return future.result(left)
        except TimeoutError as error:
            stop.touch()
            raise OutOfTime("the time is over") from error
        except OutOfTime:
            if not may_be_late:
                raise
            self._begin(recipe, may_be_late)  # it was begun ahead, when nobody knew that it would be needed
            return self._awaited(recipe, may_be_late)
        except QcError:
            raise
        except Exception as error:  # whatever a worker dies of, or a pool says of it
            raise QcError(f"the process of a trial failed with {type(error).__name__}: {error}") from error

    # -- trials that were done before -----------------------------------------------------------------------

    def _path(self, recipe: Recipe) -> Path | None:
        if self._digest is None:
            return None
        text = repr((self._digest, dumps(recipe.pipeline), recipe.rules))
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-trial.json"

    def _kept(self, recipe: Recipe) -> Trial | None:
        path = self._path(recipe)
        if path is None or not path.is_file():
            return None
        try:
            return trial_from(recipe, json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError):  # it is damaged, and written anew
            return None

    def _keep(self, trial: Trial) -> None:
        path = self._path(trial.recipe)
        if path is not None:
            with atomic_write(path) as file:
                file.write(json.dumps(trial.numbers()).encode())


def _share_of_cores(jobs: int) -> int:
    return max(1, (os.cpu_count() or 1) // jobs)


def _try_elsewhere(payload: bytes, folder: Path, recipe: Recipe, deadline: float | None, stop: Path) -> Trial:
    """The work of another process."""
    watch = Deadline(deadline, stop)
    watch.check()
    return _bench_of(payload, folder, threading.get_ident()).trial(recipe, watch)[0]


@functools.lru_cache(maxsize=8)
def _bench_of(payload: bytes, folder: Path, thread: int) -> Bench:
    """One for each thread, as a judge runs one model at a time."""
    question: Question = pickle.loads(payload)
    compilation = question.compilation
    executor = compilation.ort_executor(cache=folder)
    return Bench(replace(compilation, executor=executor), question.judge(), question.on_unseen())
