"""What points of a front really lose, as they will run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qc.report.table import Column, Table, text
from qc.report.words import finite
from qc.runtime import Metric

from ..judging import Verdict
from .front import Front, Point

_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """A point of a front, with the verdict on the model that its rules give.

    Attributes:
        point: the choice.
        verdict: on the model as it runs.
        is_best: whether none that was measured costs no more and loses less.
    """

    point: Point
    verdict: Verdict
    is_best: bool = True


@dataclass(frozen=True)
class Survey:
    """A front that was measured.

    Attributes:
        front: as it was estimated.
        measured: the cheapest first.
        metric: what counts.
    """

    front: Front
    measured: tuple[Measured, ...]
    metric: Metric

    @property
    def whole(self) -> Verdict:
        """A verdict on all samples, or on as many as any: what is hopeless is refused on a part of them."""
        return max((one.verdict for one in self.measured), key=lambda verdict: verdict.samples)

    def table(self) -> Table:
        """The measured points for a terminal or a page; those that no other one beats are marked."""
        show = self.metric.show
        columns = (
            text(""),
            text("choice"),
            Column("bits of a weight", ".2f"),
            Column("bit operations", ".1f"),
            Column(self.metric.name, show),
            Column("loss", ".4g"),
            Column("expected", ".4g"),
        )
        table = Table(columns)
        for one in self.measured:
            point, verdict = one.point, one.verdict
            numbers = point.bits, point.operations, verdict.score, verdict.drop, point.harm
            table.add("*" if one.is_best else "", point.name, *numbers)
        return table

    def document(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        front = self.front
        names = [candidate.name for candidate in front.candidates]
        return {
            "version": _VERSION,
            "metric": self.metric.name,
            "float": finite(self.whole.reference),
            "cost": front.kind,
            "candidates": names,
            "groups": [
                {
                    "name": group.name,
                    "ops": list(group.ops),
                    "tensors": [one.tensor for one in group.quantizers],
                    "weights": group.weights,
                    "operations": group.operations,
                    "harm": dict(zip(names, harms, strict=True)),
                }
                for group, harms in zip(front.groups, front.harms, strict=True)
            ],
            "measured": [
                {
                    **_plain(one.point, names),
                    "score": finite(one.verdict.score),
                    "drop": finite(one.verdict.drop),
                    "sampling_error": finite(one.verdict.error),
                    "accepted": one.verdict.is_accepted,
                    "best": one.is_best,
                    "rules": list(one.point.rules),
                }
                for one in self.measured
            ],
            "expected": [_plain(point, names) for point in front.points],
        }


def survey(
    front: Front, metric: Metric, points: Iterable[Point], verdict_on: Callable[[Point], Verdict | None]
) -> Survey:
    """Measures points of a front.

    Args:
        front: as it was estimated.
        metric: what counts.
        points: what to measure; what comes twice is measured once.
        verdict_on: the verdict on the model that a point gives; None to leave it out.
    """
    unique = dict.fromkeys(points)
    judged = [(point, verdict) for point in unique if (verdict := verdict_on(point)) is not None]
    judged.sort(key=lambda one: (one[0].cost(front.kind), one[1].drop))
    return Survey(front, tuple(_marked(judged)), metric)


def _marked(judged: Sequence[tuple[Point, Verdict]]) -> list[Measured]:
    found: list[Measured] = []
    least = float("inf")
    for point, verdict in judged:
        found.append(Measured(point, verdict, verdict.drop < least))
        least = min(least, verdict.drop)
    return found


def _plain(point: Point, names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": point.name,
        "bits": point.bits,
        "operations": point.operations,
        "harm": point.harm,
        "choice": [names[number] for number in point.chosen],
    }
