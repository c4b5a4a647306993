"""Cuts a tall drawing into columns side by side, so that it fills a page. Sizes are in pixels."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

TURN = 10.0  # radius of the corners of a link on its way up
_LINE_GAP = 7.0
_ROOM = 30.0  # between boxes and the first link that turns
_GUTTER = 56.0  # between a column and the first link that goes up
_SHORT = 1000.0  # drawings that need no columns
_SHAPE = 1.3  # width by height of a page beside what it tells


@dataclass(frozen=True)
class Gutter:
    """Where links go up from the foot of a column to the head of the next.

    Attributes:
        links: how many of them.
        x: of the first link.
        foot: the bottom of the column.
        head: the top of the next one.
    """

    links: int
    x: float
    foot: float
    head: float

    def way(self, number: int) -> tuple[float, float, float]:
        """The x of a link, and where it begins and ends to go up; none crosses those of other numbers.

        Args:
            number: 0 for the link that comes from the right, and so on.
        """
        outer = self.links - 1 - number
        foot = self.foot + _ROOM + number * _LINE_GAP - TURN
        return self.x + number * _LINE_GAP, foot, self.head - _ROOM - outer * _LINE_GAP + TURN


@dataclass(frozen=True)
class Columns:
    """Where layers are.

    Attributes:
        shifts: by layer, how far it is moved to the right.
        tops: by layer.
        gutters: by the last layer of each column that has a next one.
        width, height: of the whole drawing.
    """

    shifts: list[float]
    tops: list[float]
    gutters: Mapping[int, Gutter]
    width: float
    height: float


def columns_of(
    heights: Sequence[float],
    ends: Sequence[tuple[float, float]],
    passing: Sequence[int],
    weights: Sequence[int],
    gap: float,
) -> Columns:
    """Places layers in columns of about the same height, as many as show them large on a page.

    Args:
        heights: of the layers.
        ends: the least and the greatest x of what is in each layer.
        passing: how many links lead from each layer to later ones.
        weights: of these links; where they are small, a column may end.
        gap: between layers.
    """
    bottoms = [*accumulate(height + gap for height in heights)]
    height = bottoms[-1]
    most = math.ceil(math.sqrt(_SHAPE * height / _GUTTER)) if height > _SHORT else 1
    found = (
        _in_columns(heights, ends, passing, gap, _cuts(bottoms, count, weights))
        for count in range(1, most + 1)
    )
    return min(found, key=_cost)


def _cost(columns: Columns) -> float:
    """How small it is on a page; each break, behind which eyes must find on, weighs as a tenth of that."""
    return max(columns.width, _SHAPE * columns.height) * (1 + 0.1 * len(columns.gutters))


def _in_columns(
    heights: Sequence[float],
    ends: Sequence[tuple[float, float]],
    passing: Sequence[int],
    gap: float,
    cuts: Sequence[int],
) -> Columns:
    """Places layers, with a new column behind each of ``cuts``."""
    head = _ROOM + max(passing[cut] for cut in cuts) * _LINE_GAP if cuts else 0.0
    shifts: list[float] = []
    tops: list[float] = []
    gutters: dict[int, Gutter] = {}
    left, lowest = 0.0, 0.0
    for start, end in pairwise([0, *(cut + 1 for cut in cuts), len(heights)]):
        shifts += [left - min(one for one, _ in ends[start:end])] * (end - start)
        tops += accumulate((height + gap for height in heights[start : end - 1]), initial=head)
        left = shifts[-1] + max(one for _, one in ends[start:end])
        foot = tops[-1] + heights[end - 1]
        lowest = max(lowest, foot)
        if end < len(heights):
            links = passing[end - 1]
            gutters[end - 1] = Gutter(links, left + _GUTTER, foot, head)
            left += 2 * _GUTTER + links * _LINE_GAP
    return Columns(shifts, tops, gutters, left, lowest + head)


def _cuts(bottoms: Sequence[float], count: int, weights: Sequence[int]) -> list[int]:
    """The last layers of all columns but the last; of those about there, that with the least weight."""
    height = bottoms[-1]
    cuts: list[int] = []
    for number in range(1, count):
        ideal, slack = height * number / count, height / count / 4
        near = range(bisect_left(bottoms, ideal - slack), bisect_right(bottoms, ideal + slack))
        costs = [(weights[layer], abs(bottoms[layer] - ideal), layer) for layer in near]
        if costs:
            cuts.append(min(costs)[-1])
    return cuts
