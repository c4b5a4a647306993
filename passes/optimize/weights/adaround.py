"""Learns whether each number is rounded up or down, by gradients, all outputs of a layer at once.

M. Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization, 2020. Each code is the one
below its number plus a rectified sigmoid of a variable, and Adam makes the error and a term that drives the
sigmoids to 0 or 1 least; schedule and constants are those of AIMET. The gradient of the error comes from the
Gram matrix of the features, so that an iteration is one product of matrices and sees all the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .problem import Problem

# The sigmoid is stretched to this range and cut at 0 and 1.
_BOTTOM, _TOP = -0.1, 1.1
_RATE, _FADING, _FADING_OF_SQUARES = 1e-2, 0.9, 0.999
# Regularization counts in so many times the mean error of a nearest code.
_UNIT = 1000.0
# An error below this is none: what divides by it has no float32.
_NO_ERROR = 1e-30


@dataclass(frozen=True)
class Annealing:
    """How variables are learned.

    Attributes:
        iterations: steps of Adam.
        regularization: what a variable between 0 and 1 costs, in thousands of what a weight with the nearest
            code costs.
        beta: how flat that cost is at 0.5, when it sets in and at the end.
        warm_start: the share of the iterations before it sets in.
    """

    iterations: int = 500
    regularization: float = 0.01
    beta: tuple[float, float] = (20.0, 2.0)
    warm_start: float = 0.2

    def beta_at(self, iteration: int) -> float | None:
        """The exponent in an iteration; None in the warm start."""
        begin = self.warm_start * self.iterations
        if iteration < begin:
            return None
        share = (iteration - begin) / max(self.iterations - begin, 1.0)
        first, last = self.beta
        return float(last + 0.5 * (first - last) * (1.0 + np.cos(share * np.pi)))


def adaround(problem: Problem, annealing: Annealing = Annealing()) -> np.ndarray:
    """The codes; float64 whole numbers, shape ``(groups, outputs, features)``.

    An output whose error would be above that of the nearest codes keeps those.
    """
    nearest = problem.nearest(problem.wanted)
    places = np.clip(problem.wanted / problem.scale + problem.zero, problem.lowest, problem.highest)
    below = np.floor(places)
    error = problem.error(nearest)
    unit = np.where(error > _NO_ERROR, error, 1.0)[..., np.newaxis] / problem.wanted.shape[-1] * _UNIT
    learned = below + (_learned(problem, below, places - below, unit, annealing) >= 0.5)
    return problem.better(np.clip(learned, problem.lowest, problem.highest), nearest)


def _learned(
    problem: Problem, below: np.ndarray, share: np.ndarray, unit: np.ndarray, annealing: Annealing
) -> np.ndarray:
    """What is added to the codes below, 0 to 1; in float32, which is twice as fast."""
    gram, step = problem.gram.astype(np.float32), problem.scale.astype(np.float32)
    offset = (problem.numbers(below) - problem.wanted).astype(np.float32)
    slope_of_error = (2.0 * problem.scale / unit).astype(np.float32)
    stretched = np.clip((share - _BOTTOM) / (_TOP - _BOTTOM), 1e-3, 1.0 - 1e-3)
    variable = np.log(stretched / (1.0 - stretched)).astype(np.float32)
    mean, square = np.zeros_like(variable), np.zeros_like(variable)
    for iteration in range(annealing.iterations):
        sigmoid, added = _added(variable)
        slope = (offset + np.clip(added, 0.0, 1.0) * step) @ gram * slope_of_error
        beta = annealing.beta_at(iteration)
        if beta is not None:
            side = 2.0 * np.clip(added, 0.0, 1.0) - 1.0
            cost = np.float32(2.0 * beta * annealing.regularization)
            slope -= cost * np.sign(side) * np.abs(side) ** np.float32(beta - 1.0)
        is_inside = (added > 0.0) & (added < 1.0)
        slope *= is_inside * sigmoid * (1.0 - sigmoid) * np.float32(_TOP - _BOTTOM)
        mean += np.float32(1.0 - _FADING) * (slope - mean)
        square += np.float32(1.0 - _FADING_OF_SQUARES) * (slope * slope - square)
        # Adam's correction of means that begin at zero
        rate = (
            _RATE * np.sqrt(1.0 - _FADING_OF_SQUARES ** (iteration + 1)) / (1.0 - _FADING ** (iteration + 1))
        )
        variable -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(1e-8))
    return np.clip(_added(variable)[1], 0.0, 1.0)


def _added(variable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sigmoid of variables, and what it is stretched to."""
    sigmoid = 1.0 / (1.0 + np.exp(-variable))
    return sigmoid, sigmoid * np.float32(_TOP - _BOTTOM) + np.float32(_BOTTOM)
