"""Climbs a ladder of recipes until one is good enough, and gives single ops more bits if none is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.coverage import Coverage
from qc.ir.errors import QcError, UsageError
from qc.passes import NullProgress, Progress
from qc.runtime import Recorder

from .judging import Judge, Verdict
from .mixed_precision import Front, Point, cheapest, find_front, wider_candidates
from .recipes import Recipe

# Choices of mixed precision that are told apart: that the right one is between two of them saves nothing.
_POINTS = 64


@dataclass(frozen=True)
class Trial:
    """A recipe that was tried.

    Attributes:
        recipe: what was tried.
        verdict: on what came out.
        coverage: what is quantized there.
        seconds: how long it took, judging included.
    """

    recipe: Recipe
    verdict: Verdict
    coverage: Coverage
    seconds: float

    @property
    def integer_share(self) -> float:
        """The share of the multiplications that are done on quantized data; 0 if there are none."""
        done = self.coverage.multiplied
        return done.quantized / done.total if done.total else 0.0


@dataclass(frozen=True)
class Found:
    """What came of it.

    Attributes:
        compiled: the result of the best recipe.
        best: its trial: the accepted one with the most multiplications in few bits, else the one that loses
            least.
        trials: all, in order.
        ended: why no more was tried, if that is not that a recipe was accepted.
    """

    compiled: Compiled
    best: Trial
    trials: tuple[Trial, ...]
    ended: str = ""


@dataclass
class Climb:
    """One search for a recipe.

    Attributes:
        compilation: the model, the data to calibrate on, the target; its pipeline and rules do not count.
        judge: what is good enough.
        minutes: no trial begins after these.
        on_trial: called with every trial when it is done.
    """

    compilation: Compilation
    judge: Judge
    minutes: float
    on_trial: Callable[[Trial], None] = lambda trial: None
    progress: Progress = field(default_factory=NullProgress)

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._trials: list[Trial] = []
        self._best: tuple[Trial, Compiled] | None = None
        executor = self.compilation.executor or self.compilation.ort_executor()
        self.compilation = replace(self.compilation, executor=Recorder(executor), precision=())

    def run(self, ladder: Sequence[Recipe]) -> Found:
        """Tries the recipes in order and, if none is accepted, the best of them with more bits for some ops.

        An interrupt from the keyboard, or a recipe that fails, ends it with the best that was found so far.

        Raises:
            UsageError: there is no recipe, a recipe does not fit the target, or the metric fails.
            QcError: what :meth:`qc.Compilation.compile` raises for the first recipe.
        """
        if not ladder:
            raise UsageError("there is no recipe to try")
        ended = ""
        try:
            if not self._climb(ladder):
                ended = self._widen()
        except KeyboardInterrupt:
            if self._best is None:
                raise
            ended = "it was interrupted"
        except QcError as error:
            if self._best is None:
                raise
            ended = f"what was tried next failed: {error}"
        assert self._best is not None
        return Found(self._best[1], self._best[0], tuple(self._trials), ended)

    def _climb(self, ladder: Sequence[Recipe]) -> bool:
        """Whether a recipe was accepted."""
        return any(self._try(recipe).verdict.is_accepted for recipe in self._in_time(ladder))

    def _widen(self) -> str:
        """Gives groups of quantizers more bits until a result is accepted; why it was not, if it was not."""
        assert self._best is not None
        best, compiled = self._best
        if not self._is_late:
            front = self._front(compiled)
            # The first of the front is what was refused; of the last, all in float, nothing is left.
            points = [point for point in front.spread(_POINTS) if point.rules and not point.is_float]
            first = front.guess(points, best.verdict.drop, best.verdict.limit)
            if points and cheapest(points, first, lambda point: self._accepts(best.recipe, point)):
                return ""
        return f"the {self.minutes:g} minutes were over" if self._is_late else "nothing is left to try"

    def _front(self, compiled: Compiled) -> Front:
        task = self.progress.start("measuring candidates", None)
        judge = self.judge
        front = find_front(
            compiled,
            wider_candidates(compiled.ir, compiled.target),
            judge.reference,
            judge.metric,
            judge.data,
            labels=judge.labels,
            threads=self.compilation.threads,
            on_run=task.advance,
        )
        task.finish()
        return front

    def _accepts(self, recipe: Recipe, point: Point) -> bool | None:
        """The verdict on a recipe with the rules of a point; None when there is no more time."""
        if self._is_late:
            return None
        mixed = Recipe(f"{recipe.name}, {point.name}", recipe.pipeline, (*recipe.rules, *point.rules))
        return self._try(mixed).verdict.is_accepted

    def _try(self, recipe: Recipe) -> Trial:
        start = time.monotonic()
        made = replace(
            self.compilation, pipeline=recipe.pipeline, precision=recipe.rules, progress=self.progress
        ).compile()
        samples = self.judge.samples
        task = self.progress.start(f"judging {recipe.name}", samples)
        verdict = self.judge(made.model, task.advance)
        task.finish()
        trial = Trial(recipe, verdict, made.coverage, time.monotonic() - start)
        self._trials.append(trial)
        # What is tried behind an accepted one is cheaper.
        if self._best is None or trial.verdict.is_accepted or _loses_less(trial, self._best[0]):
            self._best = trial, made
        self.on_trial(trial)
        return trial

    def _in_time(self, items: Sequence | Iterator) -> Iterator:
        """The items as long as there is time; the first in any case."""
        for index, item in enumerate(items):
            if index and self._is_late:
                return
            yield item

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._start > 60 * self.minutes


def _loses_less(trial: Trial, other: Trial) -> bool:
    """Whether a trial is better than one that was refused."""
    return not other.verdict.is_accepted and trial.verdict.drop < other.verdict.drop
