"""Climbs a ladder of recipes until one is good enough, and mixes precisions if none is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from qc.compiler.compiled import Compiled
from qc.ir.base.shown import Shown
from qc.ir.errors import QcError, UsageError
from qc.runtime import Latency

from .mixed_precision import Cost, Mixer, Mixing, Survey
from .pace import Pace, is_slower, quicker_rules
from .recipes import Recipe
from .trial import FLOAT_BITS, Trial
from .trials import Trials
from .watch import OutOfTime

Objective = Literal["latency", "size", "bits"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
_ROUNDING = 1e-6  # of an average


@dataclass(frozen=True)
class Failure:
    """A recipe that could not be tried, and why."""

    recipe: Recipe
    reason: str


@dataclass(frozen=True)
class Found(Shown):
    """What came of it.

    Attributes:
        compiled: the result of the best recipe.
        best: its trial: the accepted one that is best by the objective, else the one that loses least.
        is_accepted: whether it loses no more than it may, with as few bits and as quickly as is asked for.
        trials: all, in order.
        failures: recipes that do not fit the model.
        ended: why no more was tried, if that is not that a recipe was accepted.
        latency: of the result, beside float, if the objective is latency.
        is_mixed: whether precisions were mixed to get there.
        survey: the front of mixed precision, as much of it as was measured, if that was asked for; None if
            that is nothing.
    """

    compiled: Compiled
    best: Trial
    is_accepted: bool
    trials: tuple[Trial, ...]
    failures: tuple[Failure, ...] = ()
    ended: str = ""
    latency: Latency | None = None
    is_mixed: bool = False
    survey: Survey | None = None


@dataclass
class Climb:
    """One search for a recipe.

    Attributes:
        trials: where recipes are tried.
        objective: what is best among the recipes that are accepted; None for what is found first.
        most_bits: bits of a weight, on average, that the result may have, without the weights that stay float
            in every recipe; None for any.
        mixing: how precisions are mixed.
        on_trial: called with every trial when it is done.
        on_failure: called with every recipe that does not fit the model.
    """

    trials: Trials
    objective: Objective | None = None
    most_bits: float | None = None
    mixing: Mixing = Mixing()
    on_trial: Callable[[Trial], None] = lambda trial: None
    on_failure: Callable[[Failure], None] = lambda failure: None
    done: list[Trial] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._best: Trial | None = None
        self._error: QcError | None = None
        self._pace: Pace | None = None
        self._latencies: dict[Recipe, Latency] = {}
        self._mixer: Mixer | None = None
        self._is_mixed = False

    def run(self, ladder: Sequence[Recipe], try_all: bool = False) -> Found:
        """Tries the recipes in order and, if none is accepted, the best of them with more bits for some ops.

        A recipe that fails is left out. An interrupt from the keyboard, or the end of the time, ends the
        search with the best that was found so far.

        Args:
            ladder: the recipes.
            try_all: do not end with the first that is accepted, as the objective decides between them.

        Raises:
            UsageError: there is no recipe, or the metric fails.
            QcError: what :meth:`qc.Compilation.compile` raises, where every recipe fails.
        """
        if not ladder:
            raise UsageError("there is no recipe to try")
        ended = ""
        try:
            if not self._climb(ladder, try_all):
                ended = self._widen()
            if self.objective == "latency":
                self._mixer_of_best()  # before kinds of ops stay float, which leaves little to choose from
                self._hasten()
            self._survey()
        except KeyboardInterrupt:
            ended = "it was interrupted"
            if self._best is None:
                raise
        except OutOfTime:
            ended = "the time was over"
        finally:
            self.trials.drop_ahead()
        if self._best is None:
            assert self._error is not None
            raise self._error
        made = self.trials.compiled(self._best.recipe)
        is_accepted, latency = self._is_accepted(self._best), None
        if self.objective == "latency":
            latency = self._latency(self._best)
            if is_accepted and is_slower(latency):
                is_accepted = False
                ended = f"the quickest that is good enough takes {latency.ratio:.2f} times as long as float"
        done, failures = tuple(self.done), tuple(self.failures)
        measured = self._mixer.survey() if self._mixer is not None and self.mixing.points else None
        outcome = made, self._best, is_accepted, done, failures
        return Found(*outcome, ended, latency, self._is_mixed, measured)

    def _climb(self, ladder: Sequence[Recipe], try_all: bool) -> bool:
        """Whether a recipe was accepted."""
        is_accepted = False
        for number, recipe in enumerate(ladder):
            self._check_time()
            self.trials.expect(ladder[number:])
            trial = self._try(recipe)
            is_accepted |= trial is not None and self._is_accepted(trial)
            if is_accepted and not try_all:
                break
        self.trials.drop_ahead()
        return is_accepted

    def _widen(self) -> str:
        """Gives groups of quantizers more bits until a result is accepted; why it was not, if it was not."""
        self._check_time()
        mixer = self._mixer_of_best()
        if mixer is None:
            return ""
        self._is_mixed = True
        try:
            if mixer.widen() is not None:
                return ""
        except OutOfTime:
            raise
        except QcError as error:
            return f"mixed precision cannot be measured: {error}"
        if self.most_bits is not None:
            return f"no mixture of precisions with {self.most_bits:g} bits of a weight or fewer does"
        return "nothing is left to try"

    def _survey(self) -> None:
        """Measures the front of the recipe in which precisions were mixed, or of the best, if asked to."""
        mixer = self._mixer_of_best() if self.mixing.points else None
        if mixer is None:
            return
        try:
            mixer.try_front()
        except OutOfTime:
            raise
        except QcError as error:
            self.failures.append(Failure(mixer.base.recipe, f"mixed precision cannot be measured: {error}"))
            self.on_failure(self.failures[-1])

    def _mixer_of_best(self) -> Mixer | None:
        """What mixes precisions in the recipe that is the best when that begins; None if there is none."""
        if self._mixer is None and self._best is not None:
            self._mixer = Mixer(
                self.trials,
                self._best,
                self.mixing,
                self._cost(),
                self.most_bits,
                self._try,
                self._is_accepted,
                self._latency if self.objective == "latency" and self.mixing.points else None,
            )
        return self._mixer

    def _cost(self) -> Cost:
        """What mixtures are compared by."""
        if self.objective == "latency":
            has_costs = self.trials.question.compilation.chosen_target().costs is not None
            return "time" if has_costs else "operations"
        wants_few_bits = self.most_bits is not None or self.objective is not None
        return "size" if wants_few_bits or self.mixing.is_asked else "operations"

    def _hasten(self) -> None:
        """If the result is slower than float, leaves kinds of ops in float that are quicker there."""
        if (
            self._best is None
            or not self._is_accepted(self._best)
            or not is_slower(self._latency(self._best))
        ):
            return
        self._check_time()
        recipe = self._best.recipe

        def compiled(rules: Sequence[str]) -> Compiled:
            return self.trials.sketch(Recipe(recipe.name, recipe.pipeline, tuple(rules)))

        assert self._pace is not None
        rules = quicker_rules(self._pace, compiled, self.trials.compiled(recipe), recipe.rules)
        more = rules[len(recipe.rules) :]
        if more:
            kinds = ", ".join(rule.removeprefix("type:").removesuffix("=off") for rule in more)
            self._try(Recipe(f"{recipe.name}, {kinds} in float", recipe.pipeline, tuple(rules)))

    def _latency(self, trial: Trial) -> Latency:
        """That of what a trial made."""
        if trial.recipe not in self._latencies:
            question = self.trials.question
            self._pace = self._pace or Pace(question.compilation, self.trials.judge.data)
            self._latencies[trial.recipe] = self._pace.of(self.trials.compiled(trial.recipe))
        return self._latencies[trial.recipe]

    def _is_accepted(self, trial: Trial) -> bool:
        return trial.verdict.is_accepted and self._has_few_bits(trial)

    def _has_few_bits(self, trial: Trial) -> bool:
        if self.most_bits is None:
            return True
        always = min(one.float_weights for one in [*self.done, trial])
        bits = trial.weight_bits - FLOAT_BITS * always
        return bits <= self.most_bits * (1 - always) + _ROUNDING

    def _try(self, recipe: Recipe) -> Trial | None:
        """The trial of a recipe; None if it fails."""
        self._check_time()
        if self._best is not None:
            self.trials.forget_but(self._best.recipe)
        try:
            trial = self.trials.result(recipe, may_be_late=self._best is None)
        except OutOfTime:
            raise
        except QcError as error:
            self._error = self._error or error
            self.failures.append(Failure(recipe, str(error)))
            self.on_failure(self.failures[-1])
            return None
        self.done.append(trial)
        if self._best is None or self._rank(trial) > self._rank(self._best):
            self._best = trial
        self.on_trial(trial)
        return trial

    def _check_time(self) -> None:
        """Raises OutOfTime when the time is over, if something was found by then."""
        if self._best is not None:
            self.trials.watch().check()

    def _rank(self, trial: Trial) -> tuple[bool, bool, float, int]:
        """What is accepted comes first, by the objective; what is not, by how little it loses."""
        has_few = self._has_few_bits(trial)
        if not self._is_accepted(trial):
            return False, has_few, -trial.verdict.drop, 0
        aim = 0.0
        if self.objective == "latency":
            aim = -self._latency(trial).ratio
        elif self.objective is not None or self.mixing.is_asked:
            aim = -float(trial.size if self.objective == "size" else trial.weight_bits)
        return True, has_few, aim, self.done.index(trial)  # what is tried behind an accepted one is cheaper
