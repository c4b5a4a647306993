"""Rounds one feature after the other as GPTQ does, and keeps several sets of codes until the end.

A bounded list of the best is carried along, as decoders of lattices do (K-best; Z. Guo and P. Nilsson,
Algorithm and Implementation of the K-Best Sphere Decoding, 2006), all outputs of a layer at once.
"""

from __future__ import annotations

import numpy as np

from .gptq import in_activation_order, in_order, lower_factor
from .problem import Problem

# Lists are as long as this many features allow: short layers are searched nearly completely.
_SHORTEST, _LONGEST, _STEPS = 8, 64, 1024
# Products of all steps beyond which one set of codes must do: more gain little there, and cost much.
_LARGEST = 1 << 26
# Steps from the nearest code that are looked at, on the side of the number and on the other.
_AWAY = (0, 1, -1)
# Features after which lists are put in order for all features before.
_AT_ONCE = 16


def beam(problem: Problem, kept: int | None = None) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``.

    An output whose error would be above that of the nearest codes keeps those.

    Args:
        kept: how many sets of codes are carried along for each output; None for 8 to 64, more the fewer
            features there are.
    """
    features = problem.wanted.shape[-1]
    is_large = problem.wanted.size * features > _LARGEST
    most = kept or min(max(_STEPS // max(features, 1), _SHORTEST), _LONGEST)
    found = in_activation_order(
        problem, in_order if is_large and kept is None else lambda given: _in_order(given, most)
    )
    return problem.better(found, problem.nearest(problem.wanted))


def _in_order(problem: Problem, most: int) -> np.ndarray:
    factor = lower_factor(problem.gram)
    groups, outputs, features = problem.wanted.shape
    codes = np.zeros((1, groups, outputs, features))
    errors = np.zeros((1, groups, outputs, features))
    costs = np.zeros((1, groups, outputs))
    for start in range(0, features, _AT_ONCE):
        stop = min(start + _AT_ONCE, features)
        carried = errors[..., :start] @ np.swapaxes(factor[:, start:stop, :start], 1, 2)
        origin = np.broadcast_to(np.arange(len(codes))[:, np.newaxis, np.newaxis], costs.shape)
        # What lists hold in this run of features lies in one row, as all of it goes where a list goes.
        rows = np.stack([codes[..., start:stop], errors[..., start:stop], carried], axis=-2)
        for i in range(start, stop):
            at, pivot = i - start, factor[:, i, i, np.newaxis]
            inside = (rows[..., 1, :at] @ factor[:, i, start:i, np.newaxis])[..., 0]
            aim = problem.wanted[..., i] + (rows[..., 2, at] + inside) / pivot
            tried = _around(problem, aim, i)
            new = costs + np.square((aim - problem.numbers(tried, i)) * pivot)
            new[1:][tried[1:] == tried[0]] = np.inf  # at the end of the grid: the same code again
            costs, parent, chosen = _best(new, tried, most)
            origin, rows = _taken(origin, parent), _taken(rows, parent)
            rows[..., 0, at] = chosen
            rows[..., 1, at] = problem.wanted[..., i] - problem.numbers(chosen, i)
        codes, errors = _taken(codes, origin), _taken(errors, origin)
        codes[..., start:stop], errors[..., start:stop] = rows[..., 0, :], rows[..., 1, :]
    return _taken(codes, costs.argmin(0)[np.newaxis])[0]


def _taken(lists: np.ndarray, which: np.ndarray) -> np.ndarray:
    """For each group and output some of the lists; ``(taken, groups, outputs)`` and what each list holds.

    Whole rows are copied, several times as fast as ``take_along_axis``, which looks up each number.

    Args:
        lists: shape ``(lists, groups, outputs)`` and that of what each holds.
        which: int64, shape ``(taken, groups, outputs)``.
    """
    places = np.arange(which[0].size).reshape(which.shape[1:])
    return lists.reshape(-1, *lists.shape[3:])[which * places.size + places]


def _around(problem: Problem, aim: np.ndarray, feature: int) -> np.ndarray:
    """The codes around numbers, the nearest first; a new first axis."""
    nearest = problem.nearest(aim, feature)
    place = aim / problem.scale[..., feature] + problem.zero[..., feature]
    side = np.where(place >= nearest, 1.0, -1.0)
    tried = [np.clip(nearest + away * side, problem.lowest, problem.highest) for away in _AWAY]
    return np.stack(tried)


def _best(costs: np.ndarray, codes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least costs of ``(tries, lists, groups, outputs)``, their lists, and their codes."""
    lists = costs.shape[1]
    costs, codes = (one.reshape(-1, *one.shape[2:]) for one in (costs, codes))
    order = np.argpartition(costs, min(most, len(costs)) - 1, axis=0)[:most]
    return _taken(costs, order), order % lists, _taken(codes, order)
