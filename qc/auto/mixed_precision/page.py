"""The page of a front: what every choice costs and loses, and which precision each group has in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from qc.rendering.html import page
from qc.rendering.words import count

from .candidates import FLOAT
from .survey import Measured, Survey

_WIDTH, _HEIGHT = 1150, 340  # pixels
_LEFT, _RIGHT, _ABOVE, _BELOW = 78, 24, 18, 40
_LEVELS = 5


class Mark(NamedTuple):
    """One measured point in the chart."""

    x: str
    y: str
    title: str
    label: str
    is_best: bool


class Chart:
    """Costs from left to right in powers, scores upwards in their own direction. Sizes are in pixels."""

    width, height, left = _WIDTH, _HEIGHT, _LEFT
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BELOW

    def __init__(self, survey: Survey) -> None:
        self._survey, self._kind = survey, survey.front.kind
        self._costs = [math.log(max(one.cost(self._kind), 1e-9)) for one in survey.measured]
        scores = [*self._scores(), survey.whole.reference]
        self._low, self._high = min(scores), max(scores)
        room = (self._high - self._low or abs(self._high) or 1.0) * 0.06
        self._low, self._high = self._low - room, self._high + room
        self.float_at = self._y(survey.whole.reference)
        self.limit_at = self._y(_limit(survey))

    @property
    def unit(self) -> str:
        """What the lower axis counts."""
        return {
            "size": "bits of a weight, on average",
            "operations": "bits of weight times bits of data, on average of all multiplications",
            "time": "time beside the float model on this machine",
        }[self._kind]

    def levels(self) -> Iterator[tuple[str, str]]:
        """The horizontal lines: what they stand for, and where."""
        for step in range(_LEVELS):
            score = self._low + (self._high - self._low) * (step + 0.5) / _LEVELS
            yield self._survey.metric.show(score), self._y(score)

    def costs(self) -> Iterator[tuple[str, str]]:
        """The marks below: candidates in all groups."""
        for one, cost in zip(self._survey.measured, self._costs, strict=True):
            if len(one.point.counts) == 1:
                yield f"{one.cost(self._kind):.3g}", self._x(cost)

    def line(self) -> str:
        """Through the points that no other one beats."""
        return " ".join(f"{mark.x},{mark.y}" for mark in self.marks() if mark.is_best)

    def marks(self) -> Iterator[Mark]:
        """The measured points, the cheapest first."""
        for one, cost, score in zip(self._survey.measured, self._costs, self._scores(), strict=True):
            label = one.point.name.removeprefix("all ") if len(one.point.counts) == 1 else ""
            yield Mark(self._x(cost), self._y(score), describe(one, self._survey), label, one.is_best)

    def _scores(self) -> list[float]:
        """What can be drawn: a model that gives nothing is as bad as the worst of the others."""
        scores = [one.verdict.score for one in self._survey.measured]
        known = [score for score in scores if math.isfinite(score)] or [0.0]
        worst = min(known) if self._survey.metric.higher_is_better else max(known)
        return [score if math.isfinite(score) else worst for score in scores]

    def _x(self, cost: float) -> str:
        low, high = self._costs[0], self._costs[-1]
        share = (cost - low) / (high - low) if high > low else 0.5
        return f"{_LEFT + 12 + share * (self.right - _LEFT - 24):.1f}"

    def _y(self, score: float) -> str:
        share = min(max((score - self._low) / (self._high - self._low), 0.0), 1.0)
        if not self._survey.metric.higher_is_better:
            share = 1 - share
        return f"{self.bottom - share * (self.bottom - _ABOVE):.1f}"


def front_page(title: str, survey: Survey) -> str:
    """An HTML page; nothing is loaded from elsewhere, and all names are escaped."""
    front, metric = survey.front, survey.metric
    points = len(front.points)
    return page(
        "auto/mixed_precision/page.html",
        title=title,
        subtitle=f"{count(len(front.groups), 'group')} of quantizers, {count(points, 'choice')}, "
        f"{count(len(survey.measured), 'model')} measured",
        chart=Chart(survey),
        metric=metric.name,
        table=survey.table(),
        candidates=[candidate.name for candidate in front.candidates],
        colours=["float" if one == FLOAT else number for number, one in enumerate(front.candidates)],
        titles=[one.point.name for one in survey.measured],
        groups=list(_groups(survey)),
    )


def describe(one: Measured, survey: Survey) -> str:
    """All about one point, for a tooltip."""
    show, verdict, point = survey.metric.show, one.verdict, one.point
    return "\n".join(
        (
            point.name,
            f"{survey.metric.name} {show(verdict.score)}, float {show(verdict.reference)}",
            f"loses {verdict.drop:.4g}{verdict.error_text}, expected {point.harm:.4g}",
            f"{point.bits:.2f} bits of a weight, {point.operations:.1f} bit operations",
            *([f"takes {one.time:.2f} times as long as float"] if one.time is not None else []),
        )
    )


def _limit(survey: Survey) -> float:
    verdict = survey.whole
    sign = 1 if survey.metric.higher_is_better else -1
    return verdict.reference - sign * verdict.limit


def _groups(survey: Survey) -> Iterator[dict[str, Any]]:
    """The groups in the order of the ops: what each candidate does, and which one each point has."""
    front = survey.front
    worst = max((harm for harms in front.harms for harm in harms), default=0.0) or 1.0
    for number, (group, harms) in enumerate(zip(front.groups, front.harms, strict=True)):
        yield {
            "name": group.name,
            "ops": ", ".join(group.ops),
            "weights": group.weights,
            "bars": [100 * math.sqrt(harm / worst) for harm in harms],
            "harms": harms,
            "chosen": [one.point.chosen[number] for one in survey.measured],
        }
