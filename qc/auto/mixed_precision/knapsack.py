"""The knapsack of mixed precision: one choice for each group, of least harm for every cost, exactly.

The multiple-choice knapsack problem by dynamic programming over costs; see Kellerer, Pferschy, Pisinger,
"Knapsack Problems", Springer 2004, chapter 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

# Costs are told apart by so many steps between the cheapest and the dearest choice of all groups.
_STEPS = 20_000


@dataclass(frozen=True)
class Choice:
    """One choice for every group.

    Attributes:
        cost, harm: the sums over the groups.
        chosen: the number of the candidate of each group.
    """

    cost: int
    harm: float
    chosen: tuple[int, ...]


def pareto_front(costs: Sequence[Sequence[int]], harms: Sequence[Sequence[float]]) -> list[Choice]:
    """All choices for which no other one is cheaper and does no more harm, the cheapest first.

    Exact where the costs, divided by their greatest common divisor, differ by at most 20 000 in sum; else
    they are rounded up to such steps while choosing. The same numbers always give the same choices.

    Args:
        costs: by group and candidate; the candidates of a group may be of any number, but of one at least.
        harms: likewise.
    """
    steps = _in_steps(costs)
    best = np.zeros(1)
    picks: list[np.ndarray] = []
    for own, harm in zip(steps, harms, strict=True):
        best, pick = _with_group(best, own, harm)
        picks.append(pick)
    chosen = _traced(_improving(best), picks, steps)
    found = zip(sums(costs, chosen), sums(harms, chosen), map(tuple, chosen.tolist()), strict=True)
    return _not_dominated(sorted((Choice(*one) for one in found), key=lambda one: (one.cost, one.harm)))


def _in_steps(costs: Sequence[Sequence[int]]) -> list[list[int]]:
    """What each candidate costs more than the cheapest of its group, in steps."""
    extra = [[cost - min(own) for cost in own] for own in costs]
    unit = gcd(*(cost for own in extra for cost in own)) or 1
    step = unit * max(1, -(-sum(map(max, extra)) // (unit * _STEPS)))
    return [[-(-cost // step) for cost in own] for own in extra]


def _with_group(best: np.ndarray, costs: Sequence[int], harms: Sequence[float]) -> tuple[np.ndarray, ...]:
    """The least harm by cost with one more group, and which of its candidates that is."""
    found = np.full(best.size + max(costs), np.inf)
    pick = np.zeros(found.size, np.int16)
    for number, (cost, harm) in enumerate(zip(costs, harms, strict=True)):
        part = slice(cost, cost + best.size)
        is_better = best + harm < found[part]
        found[part][is_better] = best[is_better] + harm
        pick[part][is_better] = number
    return found, pick


def _improving(best: np.ndarray) -> np.ndarray:
    """The costs at which harm falls below that of all lower costs."""
    before = np.minimum.accumulate(np.concatenate([[np.inf], best[:-1]]))
    return np.flatnonzero(best < before)


def _traced(left: np.ndarray, picks: Sequence[np.ndarray], steps: Sequence[Sequence[int]]) -> np.ndarray:
    """The choices behind costs in steps, from the last group to the first: int64, by cost and group."""
    chosen = np.zeros((left.size, len(picks)), np.int64)
    for group in reversed(range(len(picks))):
        chosen[:, group] = picks[group][left]
        left = left - np.asarray(steps[group])[chosen[:, group]]
    return chosen


def sums(table: Iterable[Sequence[float]], chosen: np.ndarray) -> list[Any]:
    """What choices cost, or harm: added from the first group to the last; integers may be of any size.

    Args:
        table: by group and candidate.
        chosen: the number of the candidate by choice and group.
    """
    total = np.zeros(len(chosen), object)
    for own, numbers in zip(table, chosen.T, strict=True):
        total += np.asarray(own, object)[numbers]
    return total.tolist()


def _not_dominated(choices: Sequence[Choice]) -> list[Choice]:
    """Those that do less harm than all before them."""
    found: list[Choice] = []
    for one in choices:
        if not found or one.harm < found[-1].harm:
            found.append(one)
    return found
