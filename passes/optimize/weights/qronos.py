"""Rounds as GPTQ does, but the first feature in the face of all that earlier layers changed.

S. Zhang et al., Qronos: Correcting the Past by Shaping the Future in Post-Training Quantization, 2025. The
first code is the best one while all other weights are those of the float model; what these are to be then
follows by least squares, and from there on both methods are the same (their equivalence by way of a Cholesky
factor is in the paper).
"""

from __future__ import annotations

import numpy as np

from .gptq import in_activation_order, in_order
from .problem import Problem


def qronos(problem: Problem) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``."""
    return in_activation_order(problem, _in_order)


def _in_order(problem: Problem) -> np.ndarray:
    change = (problem.wanted - problem.weight) @ problem.gram[:, :, :1]
    return in_order(problem, problem.weight[..., 0] + change[..., 0] / problem.gram[:, 0, :1])
