"""Improves codes one feature at a time, each to the best code given all others, until nothing changes.

A. Zhang et al., COMQ: A Backpropagation-Free Algorithm for Post-Training Quantization, 2024.
"""

from __future__ import annotations

import numpy as np

from .problem import Problem


def coordinate_descent(problem: Problem, codes: np.ndarray, sweeps: int = 4) -> np.ndarray:
    """Codes whose error is at most that of the given ones; float64 whole numbers in their shape.

    Args:
        codes: where to begin.
        sweeps: how often each feature is visited, at most.
    """
    codes = codes.copy()
    errors = np.ascontiguousarray(np.swapaxes(problem.wanted - problem.numbers(codes), 1, 2))
    for _ in range(sweeps):
        before = codes.copy()
        for i in range(codes.shape[-1]):
            slope = (problem.gram[:, i, np.newaxis, :] @ errors)[:, 0]
            best = problem.numbers(codes[..., i], i) + slope / problem.gram[:, i, i, np.newaxis]
            codes[..., i] = problem.nearest(best, i)
            errors[:, i] = problem.wanted[..., i] - problem.numbers(codes[..., i], i)
        if np.array_equal(codes, before):
            break
    return codes
