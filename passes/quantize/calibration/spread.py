"""Whether the data was enough: how much ranges would grow with more of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from qc.ir.executor import Statistics
from qc.ir.graph import Value

# On calibration sets that are large enough the median is 0.03 to 0.1.
_GROWTH = 0.1
_LEAST_FEEDS = 4  # of one sample each, below which a spread says nothing
_ENOUGH_FEEDS = 64
_ROUNDING = 1e-12  # of an average of equal numbers


def too_few(statistics: Mapping[Value, Statistics], inputs: Iterable[Value]) -> str:
    """Why the samples were too few to know ranges by, in words; empty if they were enough.

    Args:
        statistics: of the tensors that were observed.
        inputs: those of the graph, which tell whether a feed is a batch of samples.
    """
    inputs = set(inputs)
    feeds = max((int(one.feeds.max(initial=0)) for one in statistics.values()), default=0)
    if not feeds:
        return ""
    if feeds < _LEAST_FEEDS and all(_samples(value, statistics.get(value)) <= feeds for value in inputs):
        return f"ranges are those of {feeds} sample{'' if feeds == 1 else 's'} alone"
    found = {value: _growth(one, feeds) for value, one in statistics.items()}
    growths = {value: growth for value, growth in found.items() if growth is not None}
    # Inputs alone may well be from 0 to 255 in every picture, which tells nothing of the rest.
    if growths.keys() - inputs and max(growths.values()) <= _ROUNDING:
        same = f"all {feeds} samples give the same ranges"
        return f"{same}, as one that is repeated does, or data that saturates everything"
    if feeds >= _ENOUGH_FEEDS:
        return ""
    telling = [growth for value, growth in growths.items() if value not in inputs] or list(growths.values())
    typical = float(np.median(telling)) if telling else 0.0
    if typical <= _GROWTH:
        return ""
    return (
        f"half of the ranges would grow by {typical:.0%} or more with twice as many samples as these {feeds}"
    )


def is_all_zero(statistics: Mapping[Value, Statistics], inputs: Iterable[Value]) -> bool:
    """Whether all that was seen of the inputs of the graph is zero."""
    seen = [statistics[value] for value in inputs if value in statistics]
    return bool(seen) and all(float(one.minimum) == 0 == float(one.maximum) for one in seen)


def _growth(seen: Statistics, feeds: int) -> float | None:
    """By which share a range is expected to grow with twice the feeds; None if there is no telling.

    The expected largest of n numbers with an exponential tail lies ``scale * log(n)`` above their typical
    one (E. J. Gumbel: Statistics of Extremes, 1958): the average over the feeds tells the scale.
    """
    width = float(seen.maximum) - float(seen.minimum)
    if feeds < 2 or not 0 < width < math.inf:
        return None
    low, high = seen.average_range()
    beyond = (float(seen.maximum) - float(high)) + (float(low) - float(seen.minimum))
    return beyond / width * math.log(2) / math.log(feeds)


def _samples(value: Value, seen: Statistics | None) -> int:
    """How many samples of an input there were; 0 if that is not known."""
    shape = value.type.shape
    if seen is None or not shape or not all(isinstance(length, int) for length in shape[1:]):
        return 0
    elements = math.prod(length for length in shape[1:] if isinstance(length, int))
    return seen.count // elements if elements else 0
