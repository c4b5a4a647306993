"""Rounds one feature after the other, and lets those that follow make up for the error.

E. Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2023.
Written here by way of one Cholesky factor, without an inverse: with ``H = L'L`` and ``L`` lower triangular
the error is the sum over features ``i`` of ``(L[i,i] E[i] + sum over j < i of L[i,j] E[j])^2``, of which each
step makes one term least (J. Chen et al., The Geometry of LLM Quantization: GPTQ as Babai's Nearest Plane
Algorithm, 2025).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .problem import Problem

# Features whose errors are carried on to all later ones together, by one product of matrices.
_AT_ONCE = 64


def gptq(problem: Problem) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``."""
    return in_activation_order(problem, in_order)


def in_activation_order(problem: Problem, method: Callable[[Problem], np.ndarray]) -> np.ndarray:
    """The codes that a method chooses when the features that vary most come first."""
    order = activation_order(problem.gram)
    codes = method(problem.reordered(order))
    return np.take_along_axis(codes, np.argsort(order, axis=1)[:, np.newaxis, :], 2)


def activation_order(gram: np.ndarray) -> np.ndarray:
    """For each group the features, those that vary most first; shape ``(groups, features)``."""
    return np.argsort(-np.einsum("gii->gi", gram), axis=1, kind="stable")


def in_order(problem: Problem, first: np.ndarray | None = None) -> np.ndarray:
    """The codes if features are rounded in their order.

    Args:
        first: what the first feature is to be, if not what is wanted; shape ``(groups, outputs)``.
    """
    return in_order_with_error(problem, lower_factor(problem.gram), first)[0]


def in_order_with_error(
    problem: Problem, factor: np.ndarray, first: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The codes of :func:`in_order`, and the error of each output, which is the sum of what steps leave.

    Args:
        factor: that of the Gram matrix, see :func:`lower_factor`; in the dtype of the problem.
    """
    groups, outputs, features = problem.wanted.shape
    codes = np.swapaxes(np.empty((groups, features, outputs), problem.wanted.dtype), 1, 2)
    errors = np.empty((groups, features, outputs), problem.wanted.dtype)
    left = np.zeros((groups, outputs))
    for start in range(0, features, _AT_ONCE):
        stop = min(start + _AT_ONCE, features)
        before = factor[:, start:stop, :start] @ errors[:, :start]
        for i in range(start, stop):
            pivot = factor[:, i, i, np.newaxis]
            carried = before[:, i - start] + (factor[:, i, np.newaxis, start:i] @ errors[:, start:i])[:, 0]
            aim = problem.wanted[..., i] + carried / pivot
            codes[..., i] = problem.nearest(aim if i or first is None else first, i)
            number = problem.numbers(codes[..., i], i)
            errors[:, i] = problem.wanted[..., i] - number
            left += np.square((aim - number) * pivot, dtype=np.float64)  # in float32 it may be 0
    return codes, left


def lower_factor(gram: np.ndarray) -> np.ndarray:
    """The lower triangular ``L`` with ``gram = L'L``, of each of several positive definite matrices."""
    reverse = np.linalg.cholesky(gram[:, ::-1, ::-1])  # there is no upper=True before NumPy 2
    return np.ascontiguousarray(np.swapaxes(reverse, 1, 2)[:, ::-1, ::-1])  # others are slow to multiply
