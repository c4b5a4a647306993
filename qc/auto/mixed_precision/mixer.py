"""Mixes precisions in a recipe: tries choices of its front, repairs what is refused, surveys the front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qc.runtime import Latency

from ..recipes import Recipe
from ..trial import Trial
from ..trials import Trials
from .costs import Cost
from .front import SAMPLES, Front, Point, cheapest, find_front
from .harm_meter import HarmMeter
from .mixing import Mixing
from .survey import Survey, survey

# Choices of the front that are told apart: that the right one is between two of them saves nothing.
_POINTS = 64
# Choices that are tried, at most, where candidates were measured again around the best one.
_REPAIRS = 6
# The share of what may be lost from which on it is worth to look for a cheaper choice.
_SLACK = 0.1


@dataclass
class Mixer:
    """Tries mixtures of precisions in one recipe.

    Attributes:
        trials: where recipes are tried.
        base: the trial of the recipe.
        mixing: what is asked.
        kind: the cost that counts.
        most_bits: of a weight, on average, that a mixture may have; None for any.
        attempt: the trial of a recipe; None if it fails. Raises OutOfTime.
        accepts: whether a trial is good enough.
        latency: what the trial takes that was done last, beside float on this machine, for a survey; None if
            that does not count.
    """

    trials: Trials
    base: Trial
    mixing: Mixing
    kind: Cost
    most_bits: float | None
    attempt: Callable[[Recipe], Trial | None]
    accepts: Callable[[Trial], bool]
    latency: Callable[[Trial], Latency] | None = None
    _front: Front | None = None
    _asked: list[Point] = field(default_factory=list)
    _done: dict[tuple[str, ...], Trial | None] = field(default_factory=dict)
    _ratios: dict[tuple[str, ...], float] = field(default_factory=dict)
    _names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._done[()] = self.base

    def front(self) -> Front:
        """What there is to choose from, measured once; raises what find_front raises, and OutOfTime."""
        if self._front is None:
            compiled = self.trials.compiled(self.base.recipe)
            candidates = self.mixing.candidates_for(compiled)
            settings = {**self._settings(), "kind": self.kind}
            self._front = self._measured(
                lambda on_run: find_front(compiled, candidates, on_run=on_run, **settings)
            )
        return self._front

    def widen(self) -> Point | None:
        """The cheapest choice that is accepted; None if none is.

        The choices of the front are tried first. Then candidates are measured again around the best of them,
        while all other groups are as they are there, and the knapsack is solved anew: a choice that was
        refused is repaired, and one that was accepted with slack is made cheaper.

        Raises:
            UsageError: there is nothing to choose from, or no choice has so few bits.
            OutOfTime: the time is over.
        """
        front = self.front()
        points = self._allowed(front)
        if not points:
            return None
        verdict = self.base.verdict
        found = self._cheapest(points, front.guess(points, verdict.drop, verdict.limit))
        return self._repaired(front, found)

    def try_front(self) -> None:
        """Tries each candidate in all groups, and choices spread over the front; raises OutOfTime."""
        front = self.front()
        self._asked += [*front.uniform, *front.spread(self.mixing.points)]
        self._name(self._asked)
        for point in dict.fromkeys(self._asked):
            if not point.is_float:
                self._trial(point)

    def survey(self) -> Survey | None:
        """What is known of the front, which may be a part if the time is over; None if that is nothing."""
        if self._front is None:
            return None
        known = [trial.verdict for trial in self._done.values() if trial is not None]
        whole = max(known, key=lambda verdict: verdict.samples)
        perfect = replace(whole, score=whole.reference, drop=0.0, error=0.0)
        found = {}
        for point in dict.fromkeys(self._asked):
            trial = self._done.get(point.rules)
            if point.is_float:
                found[point] = perfect, 1.0 if self.latency is not None else None
            elif trial is not None:
                found[point] = trial.verdict, self._ratios.get(point.rules)
        return survey(self._front, self.trials.judge.metric, found) if found else None

    # -- internals ----------------------------------------------------------------------------------

    def _allowed(self, front: Front) -> list[Point]:
        """The choices of a front that may be tried, the cheapest first.

        The first of the front is what was refused; of the last, all in float, nothing is left.
        """
        if self.mixing.bits is not None:
            return [point for point in [replace(front, kind="size").within(self.mixing.bits)] if point.rules]
        points = (point for point in front.spread(_POINTS) if point.rules and not point.is_float)
        return [point for point in points if self.most_bits is None or point.bits <= self.most_bits]

    def _cheapest(self, points: Sequence[Point], first: int, most: int = _POINTS) -> Point | None:
        """The cheapest point that is accepted, after trying so many at most; None if none is."""
        known: dict[tuple[str, ...], bool] = {}
        self._name(points)

        def is_accepted(point: Point) -> bool | None:
            if len(known) >= most:
                return None
            following = [
                _next_point(points, first, {**known, point.rules: verdict}) for verdict in (False, True)
            ]
            ahead = [one for one in (point, *following) if one is not None]
            self.trials.expect([self._recipe(one) for one in ahead])
            trial = self._trial(point)
            known[point.rules] = trial is not None and self.accepts(trial)
            return known[point.rules]

        return cheapest(points, first, is_accepted)

    def _repaired(self, front: Front, accepted: Point | None) -> Point | None:
        """Goes from the best choice so far to better ones around it; the cheapest accepted one, if any."""
        near, last, most = accepted or self._closest(), None, len(self._done) + _REPAIRS
        while near != last and len(self._done) < most:
            last = near
            accepted = self._better(front, near, accepted, most - len(self._done)) or accepted
            near = accepted or self._closest()
        return accepted

    def _better(self, front: Front, near: Point, accepted: Point | None, most: int) -> Point | None:
        """What is accepted near a choice, and cheaper if that is accepted, after so many trials at most."""
        trial = self._done[near.rules]
        if trial is None:
            return None
        slack = trial.verdict.limit - trial.verdict.drop
        if accepted is not None and (self.mixing.bits is not None or slack < _SLACK * trial.verdict.limit):
            return None
        around, own = self._around(front, near)
        points = [one for one in self._allowed(around) if one.rules not in self._done]
        if accepted is not None:
            points = [one for one in points if one.cost(self.kind) < accepted.cost(self.kind)]
        scale = own / trial.verdict.drop if own > 0 and trial.verdict.drop > 0 else 1.0
        fitting = [number for number, one in enumerate(points) if one.harm <= slack * scale]
        if not points or (accepted is not None and not fitting):
            return None
        return self._cheapest(points, fitting[0] if fitting else len(points) - 1, most)

    def _closest(self) -> Point:
        """The choice that lost least of all that were tried."""
        return min(self._asked, key=self._drop)

    def _around(self, front: Front, point: Point) -> tuple[Front, float]:
        """The front of changes to a choice, and the harm of the choice itself in the same unit."""
        given = self._settings()
        compiled = self.trials.compiled(self.base.recipe)
        data, count = given["data"], min(SAMPLES // 2, given["data"].length or SAMPLES)
        subject = compiled, front.groups, front.candidates, given["reference"], given["metric"]
        sensitivity = HarmMeter(*subject, given["labels"], given["threads"])
        harms, own = self._measured(lambda on_run: sensitivity.around(point.chosen, data, count, on_run))
        return replace(front, harms=tuple(map(tuple, harms))), own

    def _measured(self, measure: Callable[[Callable[[], None]], Any]) -> Any:
        """What is measured, while progress is shown and the time is looked at."""
        task = self.trials.watch().start("measuring candidates", None)
        found = measure(task.advance)
        task.finish()
        return found

    def _settings(self) -> dict[str, Any]:
        judge, threads = self.trials.judge, self.trials.question.compilation.threads
        named = {"reference": judge.reference, "metric": judge.metric, "data": judge.data}
        return {**named, "labels": judge.labels, "threads": threads}

    def _trial(self, point: Point) -> Trial | None:
        """The trial of a point; None if it fails."""
        if point.rules not in self._done:
            self._done[point.rules] = self.attempt(self._recipe(point))
        if point not in self._asked:
            self._asked.append(point)
        trial = self._done[point.rules]
        if trial is not None and self.latency is not None and point.rules not in self._ratios:
            self._ratios[point.rules] = self.latency(trial).ratio
        return trial

    def _drop(self, point: Point) -> float:
        trial = self._done.get(point.rules)
        return float("inf") if trial is None else trial.verdict.drop

    def _recipe(self, point: Point) -> Recipe:
        base = self.base.recipe
        return Recipe(self._names[point.rules], base.pipeline, (*base.rules, *point.rules))

    def _name(self, points: Sequence[Point]) -> None:
        """Gives each point a name of its own, which depends on no other process."""
        for point in points:
            if point.rules in self._names:
                continue
            name = f"{self.base.recipe.name}, {point.name}"
            count = Counter(self._names.values())
            number = next(n for n in range(1, len(count) + 2) if _numbered(name, n) not in count)
            self._names[point.rules] = _numbered(name, number)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"


def _next_point(points: Sequence[Point], first: int, known: Mapping[tuple[str, ...], bool]) -> Point | None:
    """The point that is looked at next if these are known; None if nothing is left to look at."""
    asked: list[Point] = []

    def is_accepted(point: Point) -> bool | None:
        if point.rules not in known:
            asked.append(point)
        return known.get(point.rules)

    cheapest(points, first, is_accepted)
    return asked[0] if asked else None
