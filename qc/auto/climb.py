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
from .mixed import IN_FLOAT, WEIGHTS_OF_8_BITS, Step, ranked_rules
from .recipes import Recipe


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
        """Gives ops more bits until a result is accepted; why it was not, if it was not."""
        for step in (WEIGHTS_OF_8_BITS, IN_FLOAT):
            if self._is_late:
                break
            assert self._best is not None
            best, compiled = self._best
            rules = self._ranked(compiled, step)
            accepted = self._fewest(best.recipe, step.name, rules)
            if accepted:
                return ""
        if self._is_late:
            return f"the {self.minutes:g} minutes were over"
        assert self._best is not None
        names = [op.name for graph in self._best[1].ir.graphs() for op in graph.ops()]
        return "nothing is left to try" + ("" if all(names) else ", as only ops with names get more bits")

    def _ranked(self, compiled: Compiled, step: Step) -> list[str]:
        task = self.progress.start(f"ranking ops: {step.name}", None)
        assert self.compilation.data is not None
        rules = ranked_rules(compiled, self.judge.data, step, self.compilation.threads, task.advance)
        task.finish()
        return rules

    def _fewest(self, recipe: Recipe, name: str, rules: Sequence[str]) -> bool:
        """Tries twice as many rules each time until a result is accepted, then fewer; whether one was."""
        refused, accepted = 0, None
        for count in self._in_time(_doubled(len(rules))):
            if self._try_with(recipe, name, rules[:count]).verdict.is_accepted:
                accepted = count
                break
            refused = count
        while accepted is not None and accepted - refused > 1 and not self._is_late:
            middle = (accepted + refused) // 2
            if self._try_with(recipe, name, rules[:middle]).verdict.is_accepted:
                accepted = middle
            else:
                refused = middle
        return accepted is not None

    def _try_with(self, recipe: Recipe, name: str, rules: Sequence[str]) -> Trial:
        title = f"{recipe.name}, {len(rules)} op{'' if len(rules) == 1 else 's'} {name}"
        return self._try(Recipe(title, recipe.pipeline, (*recipe.rules, *rules)))

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
        if self._best is None or _rank(trial) > _rank(self._best[0]):
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


def _doubled(most: int) -> list[int]:
    """1, 2, 4 and so on, and the most."""
    found = []
    count = 1
    while count < most:
        found.append(count)
        count *= 2
    return [*found, most] if most else []


def _rank(trial: Trial) -> tuple[bool, float]:
    """Accepted ones come first, with the fewest rules; others by how little they lose."""
    verdict = trial.verdict
    return verdict.is_accepted, -float(len(trial.recipe.rules)) if verdict.is_accepted else -verdict.drop
