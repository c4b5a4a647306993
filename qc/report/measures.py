"""The numbers of a verdict, each with what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qc.rendering.check import integer_share
from qc.rendering.words import count, decibels, file_size, milliseconds
from qc.verdict.measure import Verdict


class Measure(NamedTuple):
    """A number in words: what it is of, the number, and more about it."""

    name: str
    value: str
    more: str


def measures_of(verdict: Verdict) -> Iterator[Measure]:
    """What was measured, the accuracy first."""
    accuracy, latency = verdict.accuracy, verdict.latency
    if accuracy is not None:
        on = f"on {count(accuracy.samples, 'sample')}"
        if accuracy.sqnr_db is not None:
            yield Measure("SQNR", decibels(accuracy.sqnr_db), f"at the worst output, {on}")
        if accuracy.agreement is not None:
            metric = accuracy.metric.partition("(")[0]
            yield Measure("agreement", f"{accuracy.agreement:.3f}", f"of 1, {metric}, {on}")
    if verdict.check is not None:
        share = verdict.check.share
        yield Measure("in integers", f"{share:.1%}", integer_share(verdict.check))
    if latency is not None:
        beside = f"{milliseconds(latency.seconds)}, one thread"
        yield Measure("time", f"{latency.ratio:.2f} x float", beside)
    if verdict.sizes is not None:
        yield _beside("size", verdict.sizes)
    if verdict.memory is not None:
        yield _beside("peak memory", verdict.memory)


def _beside(name: str, sizes: tuple[int, int]) -> Measure:
    before, after = sizes
    ratio = f"{after / before:.2f} x float" if before else file_size(after)
    return Measure(name, ratio, f"{file_size(after)}, was {file_size(before)}")
