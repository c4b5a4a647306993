"""How long models take, measured side by side: in turns on the same feed, with medians and quartiles."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qc.ir.executor import Feed

from ..sessions.runnable import Runnable

LATENCY_SECONDS = 3.0
_MIN_ROUNDS = 5
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Latency:
    """Time per run. The quartiles tell how far single rounds were from the median: half lie between them.

    Attributes:
        seconds: median over the rounds.
        ratio: median over the rounds of this model's time divided by the reference's in the same round.
        seconds_quartiles: the first and third quartile of the seconds.
        ratio_quartiles: the first and third quartile of the ratios.
    """

    seconds: float
    ratio: float
    seconds_quartiles: tuple[float, float]
    ratio_quartiles: tuple[float, float]


@dataclass(frozen=True)
class Timing:
    """The result of :func:`time_in_turns`.

    Attributes:
        rounds: how often each model was timed; 0 if there was no time for it.
        latencies: of each model in the order given, the first of which is the reference; None without rounds.
    """

    rounds: int
    latencies: tuple[Latency | None, ...]


def time_in_turns(models: Sequence[Runnable], feed: Feed, seconds: float, max_rounds: int) -> Timing:
    """Times models on one feed. The first is the reference.

    Every round runs each model once, and each round begins with another model, so that a change of clock or
    load hits all alike. One run of each that is not counted comes first.

    Args:
        seconds: time to spend (at least 5 rounds are run); 0 leaves timing out.
        max_rounds: rounds after which timing ends, even if there is time left.

    Raises:
        ModelError: a model does not run.
    """
    rounds = _rounds(models, feed, seconds, max_rounds) if seconds > 0 else []
    latencies = (_latency(rounds, index) if rounds else None for index in range(len(models)))
    return Timing(len(rounds), tuple(latencies))


@contextmanager
def pinned_processors(threads: int) -> Iterator[bool]:
    """A block in which this thread, and those that it starts, stay on as many processors as ``threads``.

    One logical processor for each core is taken while there are enough, and the last ones, as interrupts
    usually go to the first. Gives False, and does nothing, where the operating system has no such thing or
    lends fewer processors.
    """
    lent = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(lent) < threads:
        yield False
        return
    os.sched_setaffinity(0, _spread(sorted(lent, reverse=True))[:threads])
    try:
        yield True
    finally:
        os.sched_setaffinity(0, lent)


def _rounds(models: Sequence[Runnable], feed: Feed, seconds: float, max_rounds: int) -> list[list[float]]:
    """The seconds that each model took, for each round."""
    for model in models:
        model.run(feed)
    rounds: list[list[float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < max_rounds and (len(rounds) < _MIN_ROUNDS or time.perf_counter() < end):
        taken = [0.0] * len(models)
        for place in range(len(models)):
            index = (place + len(rounds)) % len(models)
            start = time.perf_counter()
            models[index].run(feed)
            taken[index] = time.perf_counter() - start
        rounds.append(taken)
    return rounds


def _latency(rounds: Sequence[Sequence[float]], index: int) -> Latency:
    low, seconds, high = _quartiles([taken[index] for taken in rounds])
    ratio_low, ratio, ratio_high = _quartiles([taken[index] / taken[0] for taken in rounds])
    return Latency(seconds, ratio, (low, high), (ratio_low, ratio_high))


def _quartiles(numbers: Sequence[float]) -> list[float]:
    if len(numbers) == 1:
        return [numbers[0]] * 3
    return statistics.quantiles(numbers, n=4, method="inclusive")


def _spread(processors: Sequence[int]) -> list[int]:
    """The processors with one of every core first."""
    cores: dict[str, int] = {}
    for processor in processors:
        siblings = Path(_SIBLINGS.format(processor))
        cores.setdefault(siblings.read_text() if siblings.is_file() else str(processor), processor)
    first = list(cores.values())
    return [*first, *(processor for processor in processors if processor not in first)]
