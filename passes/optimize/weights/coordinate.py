"""Improves codes, some features at a time, each to the best given all others, until nothing changes.

A. Zhang et al., COMQ: A Backpropagation-Free Algorithm for Post-Training Quantization, 2024, moves one
feature at a time. That ends where two codes would have to change together, so that here runs of features
follow, each decided as a whole by a search.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .beam import beam
from .gptq import gptq
from .problem import Problem, by_feature

# Features that are decided together, and the sets of codes that are looked at.
_TOGETHER, _KEPT = 8, 32
_SWEEPS_OF_RUNS = 2
# Features whose slopes come of one product of matrices, and are kept up as codes before them change.
_AT_ONCE = 16


def coordinate(problem: Problem) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``.

    Descends from the nearest codes and from those of GPTQ, and goes on from the better ones.
    """
    starts = problem.nearest(problem.wanted), gptq(problem)
    return runs_descent(problem, problem.better(*(coordinate_descent(problem, codes) for codes in starts)))


def coordinate_descent(problem: Problem, codes: np.ndarray, sweeps: int = 4) -> np.ndarray:
    """Codes whose error is at most that of the given ones, one feature at a time; in their shape.

    Args:
        codes: where to begin; whole numbers in the dtype of the problem.
        sweeps: how often each feature is visited, at most.
    """
    codes = by_feature(codes.copy())
    gram, features = problem.gram, codes.shape[-1]
    errors = np.ascontiguousarray(np.swapaxes(problem.wanted - problem.numbers(codes), 1, 2))
    for _ in range(sweeps):
        before = codes.copy("K")
        for start in range(0, features, _AT_ONCE):
            stop = min(start + _AT_ONCE, features)
            slopes = gram[:, start:stop] @ errors
            for i in range(start, stop):
                at = i - start
                best = problem.numbers(codes[..., i], i) + slopes[:, at] / gram[:, i, i, np.newaxis]
                codes[..., i] = problem.nearest(best, i)
                error = problem.wanted[..., i] - problem.numbers(codes[..., i], i)
                change, errors[:, i] = error - errors[:, i], error
                slopes[:, at + 1 :] += gram[:, i + 1 : stop, i, np.newaxis] * change[:, np.newaxis]
        if np.array_equal(codes, before):
            break
    return codes


def runs_descent(problem: Problem, codes: np.ndarray) -> np.ndarray:
    """As :func:`coordinate_descent`, but eight neighbours at a time, others in every other sweep."""
    codes = codes.copy()
    errors = problem.wanted - problem.numbers(codes)
    features = codes.shape[-1]
    for sweep in range(_SWEEPS_OF_RUNS):
        before = codes.copy()
        for start in range(-(_TOGETHER // 2) * (sweep % 2), features, _TOGETHER):
            run = slice(max(start, 0), min(start + _TOGETHER, features))
            part = problem.of_features(run)
            missing = np.linalg.solve(part.gram, np.swapaxes(errors @ problem.gram[:, :, run], 1, 2))
            part = replace(part, wanted=part.numbers(codes[..., run]) + np.swapaxes(missing, 1, 2))
            codes[..., run] = part.better(beam(part, _KEPT), codes[..., run])
            errors[..., run] = problem.wanted[..., run] - problem.numbers(codes[..., run], run)
        if np.array_equal(codes, before):
            break
    return codes
