"""The front of mixed precision: for every cost the choice of candidates that does least harm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError
from qc.passes import PassContext
from qc.runtime import Data, Metric, OrtExecutor
from qc.runtime.evaluation.judge import Labels
from qc.runtime.sessions.runnable import Runnable

from .candidates import FLOAT, Candidate
from .costs import UNITS, Cost, cost_table
from .groups import Group, find_groups
from .harm_meter import HarmMeter
from .knapsack import Choice, pareto_front, sums
from .times import Times

# Samples on which candidates are compared, where there are so many.
SAMPLES = 16
# Choices of a front whose time is estimated.
_MOST_TIMED = 256


@dataclass(frozen=True)
class Point:
    """One choice of a candidate for each group.

    Attributes:
        rules: those of ``set-precision`` that give a model as compiled these candidates.
        harm: what it is expected to do to the metric, compared with other points.
        bits: of a weight, in the mean.
        operations: bits of weight times bits of data, in the mean of all multiplications.
        chosen: the number of the candidate of each group.
        counts: how many groups have each candidate, by its name.
        is_float: whether no weights are in integers.
        time: what it is estimated to take beside float; None if the target has no costs.
    """

    rules: tuple[str, ...]
    harm: float
    bits: float
    operations: float
    chosen: tuple[int, ...]
    counts: dict[str, int] = field(compare=False)
    is_float: bool = False
    time: float | None = None

    @property
    def name(self) -> str:
        """The candidates in words, such as ``12 groups w8a8, 3 float``."""
        if len(self.counts) == 1:
            return f"all {next(iter(self.counts))}"
        return ", ".join(f"{count} {name}" for name, count in self.counts.items())

    def cost(self, kind: Cost) -> float:
        """What it costs."""
        if kind == "time":
            return 1.0 if self.time is None else self.time
        return self.bits if kind == "size" else self.operations


@dataclass(frozen=True)
class Front:
    """What there is to choose from.

    Attributes:
        groups: of quantizers, in the order of the ops.
        candidates: for each of them.
        harms: of the candidates by group, in the unit of the metric or as noise.
        kind: the cost that counts.
        times: of choices, if the target has costs.
    """

    groups: tuple[Group, ...]
    candidates: tuple[Candidate, ...]
    harms: tuple[tuple[float, ...], ...]
    kind: Cost
    times: Times | None = field(default=None, compare=False)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The choices that no other one beats, the cheapest first.

        Times do not add up, as two neighbours in float need no ops between them that quantize. By time they
        are the choices that are best if each group in float is alone, with the time that they take together.
        """
        choices = self._choices
        if self.kind != "time":
            return tuple(self._point(choice.chosen) for choice in choices)
        points = [self._point(choice.chosen) for choice in choices[:: -(-len(choices) // _MOST_TIMED)]]
        points.sort(key=lambda point: (point.cost("time"), point.harm))
        least = itertools.accumulate([math.inf, *(point.harm for point in points)], min)
        return tuple(point for point, before in zip(points, least, strict=False) if point.harm < before)

    @property
    def uniform(self) -> tuple[Point, ...]:
        """For each candidate the choice of it in all groups."""
        return tuple(self._point([number] * len(self.groups)) for number in range(len(self.candidates)))

    def spread(self, count: int) -> list[Point]:
        """So many points at most, each dearer than the one before by about the same factor."""
        costs = np.log(np.maximum(self._costs, 1e-9))
        nearest = (np.abs(costs - cost).argmin() for cost in np.linspace(costs[0], costs[-1], count))
        return [self._nth(index) for index in sorted(set(map(int, nearest)))]

    def guess(self, points: Sequence[Point], whole: float, limit: float) -> int:
        """The number of the first point that should lose no more than a limit, or of the last one.

        Args:
            points: some of those of the front.
            whole: what the model loses as compiled.
            limit: how much may be lost.
        """
        expected = max((point.harm for point in self.uniform), default=0.0) or 1.0
        allowed = expected * limit / whole if whole > 0 else expected
        fitting = (number for number, point in enumerate(points) if point.harm <= allowed)
        return next(fitting, len(points) - 1)

    def within(self, cost: float) -> Point:
        """The point of least harm that costs no more.

        Raises:
            UsageError: none does.
        """
        fitting = [number for number, own in enumerate(self._costs) if own <= cost]
        if not fitting:
            least = self._costs[0]
            raise UsageError(
                f"no choice has {cost:g} {UNITS[self.kind]} or fewer; the cheapest has {least:.3g}"
            )
        return self._nth(fitting[-1])

    # -- of a front, which may have thousands of choices, a few become points -------------------------

    @cached_property
    def _choices(self) -> list[Choice]:
        """The choices that the knapsack finds; by time they are thinned and sorted anew for points."""
        extra = self.times.extra if self.times is not None and self.kind == "time" else ()
        return pareto_front(cost_table(self.groups, self.candidates, self.kind, extra), self.harms)

    @cached_property
    def _costs(self) -> list[float]:
        """What each of the points costs."""
        if self.kind == "time":
            return [point.cost("time") for point in self.points]
        amounts = [group.weights if self.kind == "size" else group.operations for group in self.groups]
        numbers = [one.weight_bits if self.kind == "size" else one.bit_operations for one in self.candidates]
        chosen = np.array([choice.chosen for choice in self._choices])
        weights = amounts if any(amounts) else [1] * len(amounts)
        of_group = ([weight * number for number in numbers] for weight in weights)
        return [whole / sum(weights) for whole in sums(of_group, chosen)]

    def _nth(self, number: int) -> Point:
        """One of the points."""
        return self.points[number] if self.kind == "time" else self._point(self._choices[number].chosen)

    @cached_property
    def _rules(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The rules that give a group a candidate, by group and candidate."""
        return tuple(tuple(tuple(group.rules(one)) for one in self.candidates) for group in self.groups)

    def _point(self, chosen: Sequence[int]) -> Point:
        picked = [(group, self.candidates[number]) for group, number in zip(self.groups, chosen, strict=True)]
        by_group = [
            (one, rules[number]) for (_, one), rules, number in zip(picked, self._rules, chosen, strict=True)
        ]
        rules = [rule for one, own in by_group if one != FLOAT for rule in own]
        rules += [rule for one, own in by_group if one == FLOAT for rule in own]
        names = [one.name for _, one in picked]
        weighted = [one for group, one in picked if group.weights]
        floats = [number for number, (_, one) in enumerate(picked) if one.is_float]
        return Point(
            tuple(rules),
            sum(harms[number] for harms, number in zip(self.harms, chosen, strict=True)),
            _mean([(one.weight_bits, group.weights) for group, one in picked]),
            _mean([(one.bit_operations, group.operations) for group, one in picked]),
            tuple(chosen),
            {one.name: names.count(one.name) for one in self.candidates if one.name in names},
            all(one.is_float for one in weighted or [one for _, one in picked]),
            self.times.of(floats) if self.times is not None and self.kind == "time" else None,
        )


def find_front(
    compiled: Compiled,
    candidates: Sequence[Candidate],
    reference: Runnable,
    metric: Metric,
    data: Data,
    *,
    labels: Labels | None = None,
    kind: Cost = "operations",
    samples: int = SAMPLES,
    threads: int | None = None,
    on_run: Callable[[], None] = lambda: None,
) -> Front:
    """Measures what candidates do in the groups of a compiled model, and solves for every cost.

    By time, of choices that take as long the one that does less harm counts, whatever bits it has.

    Args:
        compiled: the model in the precision that rules start from; its quantizers have numbers.
        candidates: see :func:`.candidates.parse_candidates`.
        reference: the float model.
        metric: what counts.
        data: samples to measure on.
        labels: one for each, for the metric.
        kind: the cost.
        samples: how many samples to look at, at most.
        threads: threads within an op.
        on_run: called after every run.

    Raises:
        UsageError: nothing is quantized, the metric fails, or time counts and the target has no costs.
        DataError: the data or the labels do not fit.
    """
    groups = find_groups(compiled.ir, compiled.target)
    if not groups:
        raise UsageError("there is nothing to choose a precision for: no op reads quantized data")
    times = None
    if kind == "time":
        if compiled.target.costs is None:
            raise UsageError(f"target '{compiled.target.name}' has no costs of kernels to estimate times by")
        context = PassContext(data, OrtExecutor(threads=threads))
        times = Times(compiled.ir, groups, compiled.target, context)
    count = samples if data.length is None else min(samples, data.length)
    sensitivity = HarmMeter(compiled, groups, candidates, reference, metric, labels, threads)
    harms = sensitivity.harm(data, count, on_run)
    return Front(tuple(groups), tuple(candidates), tuple(map(tuple, harms)), kind, times)


def cheapest(
    points: Sequence[Point], guess: int, is_accepted: Callable[[Point], bool | None]
) -> Point | None:
    """The first point that is accepted, if those behind it are as well, found by looking ever further.

    Args:
        points: the cheapest first.
        guess: which one to try first.
        is_accepted: whether a point is good enough; None to end the search.

    Returns:
        The cheapest that was accepted; None if none was.
    """
    refused, accepted, index, step = -1, len(points), guess, 1
    while accepted - refused > 1:
        verdict = is_accepted(points[index])
        if verdict is None:
            break
        refused, accepted = (refused, index) if verdict else (index, accepted)
        if refused < 0 or accepted == len(points):
            index = max(0, index - step) if verdict else min(len(points) - 1, index + step)
            step *= 2
        else:
            index = (refused + accepted) // 2
    return points[accepted] if accepted < len(points) else None


def _mean(weighted: Sequence[tuple[int, int]]) -> float:
    """The mean of numbers with weights; the plain one if all weights are 0."""
    whole = sum(weight for _, weight in weighted)
    if not whole:
        return sum(number for number, _ in weighted) / len(weighted)
    return sum(number * weight for number, weight in weighted) / whole
