"""Rounds one feature after the other, and lets those that follow make up for the error.

E. Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2023.
Written here by way of one Cholesky factor, without an inverse: with ``H = L'L`` and ``L`` lower triangular
the error is the sum over features ``i`` of ``(L[i,i] E[i] + sum over j < i of L[i,j] E[j])^2``, of which each
step makes one term least (J. Chen et al., The Geometry of LLM Quantization: GPTQ as Babai's Nearest Plane
Algorithm, 2025).
"""

from __future__ import annotations

import numpy as np

from .problem import Problem

# Features whose errors are carried on to all later ones together, by one product of matrices.
_AT_ONCE = 128


def gptq(problem: Problem) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``.

    Features that vary most come first (activation order).
    """
    order = np.argsort(-np.einsum("gii->gi", problem.gram), axis=1, kind="stable")
    codes = _in_order(problem.reordered(order))
    return np.take_along_axis(codes, np.argsort(order, axis=1)[:, np.newaxis, :], 2)


def _in_order(problem: Problem) -> np.ndarray:
    factor = lower_factor(problem.gram)
    groups, outputs, features = problem.wanted.shape
    codes = np.empty((groups, outputs, features))
    errors = np.empty((groups, features, outputs))
    for start in range(0, features, _AT_ONCE):
        stop = min(start + _AT_ONCE, features)
        before = factor[:, start:stop, :start] @ errors[:, :start]
        for i in range(start, stop):
            carried = before[:, i - start] + (factor[:, i, np.newaxis, start:i] @ errors[:, start:i])[:, 0]
            codes[..., i] = problem.nearest(problem.wanted[..., i] + carried / factor[:, i, i, np.newaxis], i)
            errors[:, i] = problem.wanted[..., i] - problem.numbers(codes[..., i], i)
    return codes


def lower_factor(gram: np.ndarray) -> np.ndarray:
    """The lower triangular ``L`` with ``gram = L'L``, of each of several positive definite matrices."""
    factor = np.linalg.cholesky(gram[:, ::-1, ::-1])
    return np.swapaxes(factor[:, ::-1, ::-1], 1, 2)
