"""Searches the grid of a weight that changes the result of its layer least, with the nearest codes.

The error of many grids comes from the Gram matrix of the features. Scales that share an output, as those of
blocks do, are visited one after the other, each in the face of the errors of all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import SMALLEST_NORMAL, Encoding

from .problem import Problem

# The least share of the range of the numbers that is tried.
_LEAST_SHARE = 0.25
# What a scale that was found is multiplied by then, and what its zero point is moved by.
_FACTORS = (0.97, 0.99, 1.0, 1.01, 1.03)
_MOVES = (-1, 0, 1)
_SWEEPS = 3


def choose_grid(
    problem: Problem, encoding: Encoding, candidates: int = 20, least: np.ndarray | float = 0.0
) -> Encoding:
    """An encoding on which the nearest codes of the weight err no more than on the given one.

    Args:
        problem: that of the encoding.
        candidates: how many shares of the range of the numbers are tried, from the whole of it on.
        least: the least scales that may be chosen.
    """
    low, high = _ends(problem, encoding)
    shares = np.linspace(1.0, _LEAST_SHARE, candidates)
    ranges = [
        _at_least(least, encoding_of_range(encoding.spec, low * share, high * share)) for share in shares
    ]
    found = _best_of_each(problem, encoding, ranges)
    for _ in range(_SWEEPS):
        better = _best_of_each(problem, found, [_at_least(least, one) for one in _neighbours(found)])
        if better.equals(found):
            break
        found = better
    # Two levels round what was found once more.
    problems = problem.on(encoding), problem.on(found)
    before, after = (one.error(one.nearest(one.weight)).sum() for one in problems)
    return found if after < before else encoding


def _best_of_each(problem: Problem, encoding: Encoding, others: list[Encoding]) -> Encoding:
    """For each scale the grid with the least error: the one that it has, or that of another encoding."""
    grids = [encoding, *others]
    problem = problem.on(encoding)
    numbers = problem.rounded(problem.weight)
    chosen = np.zeros(encoding.scale.size, np.int64)
    for part in problem.parts:
        tried = problem.of_features(part)
        slope = (problem.wanted - numbers) @ problem.gram[..., part]
        costs = []
        for grid in grids:
            change = tried.on(grid).rounded(tried.weight) - numbers[..., part]
            cost = ((change @ tried.gram - 2.0 * slope) * change).sum(-1)
            costs.append(np.bincount(tried.shared[..., 0].ravel(), cost.ravel(), chosen.size))
        here = np.unique(tried.shared)
        chosen[here] = np.argmin(costs, axis=0)[here]
        numbers[..., part] = tried.on(_merged(encoding, grids, chosen)).rounded(tried.weight)
    return _merged(encoding, grids, chosen)


def _merged(encoding: Encoding, grids: list[Encoding], chosen: np.ndarray) -> Encoding:
    """The encoding whose scales are each that of one of several grids."""

    def pick(of: Callable[[Encoding], np.ndarray]) -> np.ndarray:
        flat = np.stack([of(grid).ravel() for grid in grids])
        return np.asarray(flat[chosen, np.arange(chosen.size)].reshape(encoding.scale.shape))

    zero_point = pick(lambda grid: grid.zero_point)
    return replace(encoding, scale=pick(lambda grid: grid.scale), zero_point=zero_point)


def _at_least(least: np.ndarray | float, encoding: Encoding) -> Encoding:
    return replace(encoding, scale=np.maximum(encoding.scale, least).astype(encoding.scale.dtype))


def _neighbours(encoding: Encoding) -> list[Encoding]:
    lowest, highest = encoding.spec.code_range
    found = []
    for factor in _FACTORS:
        scale = np.maximum(encoding.scale * np.float32(factor), np.float32(SMALLEST_NORMAL))
        for move in (0,) if encoding.spec.symmetric else _MOVES:
            zero = np.clip(encoding.zero_point + move, lowest, highest)
            found.append(replace(encoding, scale=scale, zero_point=zero))
    return found


def _ends(problem: Problem, encoding: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest number, at most and at least zero, under each scale."""
    low, high = np.zeros((2, encoding.scale.size))
    np.minimum.at(low, problem.shared.ravel(), problem.weight.ravel())
    np.maximum.at(high, problem.shared.ravel(), problem.weight.ravel())
    return low.reshape(encoding.scale.shape), high.reshape(encoding.scale.shape)
