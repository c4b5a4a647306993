"""What points of a front really lose, as they will run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qc.rendering.table import Column, Table, text
from qc.rendering.words import finite
from qc.runtime import Metric

from ..judging import Judgement
from .costs import Cost
from .front import Front, Point

_VERSION = 1
_CHOICE_WIDTH = 16


@dataclass(frozen=True)
class Measured:
    """A point of a front, with the verdict on the model that its rules give.

    Attributes:
        point: the choice.
        verdict: on the model as it runs.
        is_best: whether none that was measured costs no more and loses less.
        time: what it takes beside float on this machine; None if that was not measured.
    """

    point: Point
    verdict: Judgement
    is_best: bool = True
    time: float | None = None

    def cost(self, kind: Cost) -> float:
        """What it costs, measured if it was."""
        return self.time if kind == "time" and self.time is not None else self.point.cost(kind)


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
    def whole(self) -> Judgement:
        """A verdict on all samples, or on as many as any: what is hopeless is refused on a part of them."""
        return max((one.verdict for one in self.measured), key=lambda verdict: verdict.samples)

    @property
    def is_timed(self) -> bool:
        """Whether times count."""
        return self.front.kind == "time"

    def table(self) -> Table:
        """The measured points for a terminal or a page; those on the front are marked: less loses more.

        Bits are those of a weight, operations bits of weight times bits of data; both on average.
        """
        times = Column("time", ".2f"), Column("estimated", ".2f")
        columns = (
            text("", len("front")),
            Column("bits", ".2f"),
            *(times if self.is_timed else (Column("operations", ".1f"),)),
            Column("score", self.metric.show),
            Column("loss", ".4g"),
            Column("expected", ".4g"),
            text("choice", _CHOICE_WIDTH),  # at the end, where long ones break nothing else
        )
        table = Table(columns)
        for one in self.measured:
            point, verdict = one.point, one.verdict
            costs = (one.time, point.time) if self.is_timed else (point.operations,)
            numbers = point.bits, *costs, verdict.score, verdict.drop, point.harm
            table.add("front" if one.is_best else "", *numbers, point.name)
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
                    **({"time": one.time} if one.time is not None else {}),
                    "rules": list(one.point.rules),
                }
                for one in self.measured
            ],
            "expected": [_plain(point, names) for point in front.points],
        }


def survey(front: Front, metric: Metric, found: Mapping[Point, tuple[Judgement, float | None]]) -> Survey:
    """What was measured of a front.

    Args:
        front: as it was estimated.
        metric: what counts.
        found: by point, the verdict on the model that it gives, and what that takes beside float, if known.
    """
    judged = [Measured(point, verdict, time=time) for point, (verdict, time) in found.items()]
    judged.sort(key=lambda one: (one.cost(front.kind), one.verdict.drop))
    return Survey(front, tuple(_marked(judged)), metric)


def _marked(judged: Sequence[Measured]) -> Iterator[Measured]:
    least = float("inf")
    for one in judged:
        yield replace(one, is_best=one.verdict.drop < least)
        least = min(least, one.verdict.drop)


def _plain(point: Point, names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": point.name,
        "bits": point.bits,
        "operations": point.operations,
        **({"expected_time": point.time} if point.time is not None else {}),
        "harm": point.harm,
        "choice": [names[number] for number in point.chosen],
    }
