"""The numbers of a verdict, each with what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from qc.rendering.check import integer_share
from qc.rendering.words import decibels, file_size, milliseconds
from qc.verdict.measure import Verdict
from qc.verdict.words import compared_on


class Measure(NamedTuple):
    """A number in words: what it is of, the number, and more about it.

    Attributes:
        kind: of the number: how it is told beside another one.
        number: in dB, as a share of 1, or as a ratio to float.
    """

    name: str
    value: str
    more: str
    kind: Literal["decibels", "share", "ratio"]
    number: float

    def beside(self, other: Measure) -> str:
        """The number as a difference from that of another result, or as a ratio to it."""
        if self.number == other.number:
            return "equal"
        if self.kind == "ratio":
            return f"{self.number / other.number:.2f} x" if other.number else ""
        difference = self.number - other.number
        return f"{difference:+.1f} dB" if self.kind == "decibels" else f"{difference:+.3f}"


def measures_of(verdict: Verdict) -> Iterator[Measure]:
    """What was measured, the accuracy first."""
    accuracy, latency = verdict.accuracy, verdict.latency
    if accuracy is not None:
        on = compared_on(accuracy)
        if accuracy.sqnr_db is not None:
            yield Measure(
                "SQNR", decibels(accuracy.sqnr_db), f"at the worst output, {on}", "decibels", accuracy.sqnr_db
            )
        if accuracy.agreement is not None:
            metric = accuracy.metric.partition("(")[0]
            more = f"of 1, {metric}, {on}"
            yield Measure("agreement", f"{accuracy.agreement:.3f}", more, "share", accuracy.agreement)
    if verdict.check is not None:
        share = verdict.check.share
        yield Measure("in integers", f"{share:.1%}", integer_share(verdict.check), "share", share)
    if latency is not None:
        beside = f"{milliseconds(latency.seconds)}, one thread"
        yield Measure("time", f"{latency.ratio:.2f} x float", beside, "ratio", latency.ratio)
    if verdict.sizes is not None:
        yield _beside("size", verdict.sizes)
    if verdict.memory is not None:
        yield _beside("peak memory", verdict.memory)


def _beside(name: str, sizes: tuple[int, int]) -> Measure:
    before, after = sizes
    more = f"{file_size(after)}, was {file_size(before)}"
    if not before:
        return Measure(name, file_size(after), more, "ratio", 0.0)
    return Measure(name, f"{after / before:.2f} x float", more, "ratio", after / before)
