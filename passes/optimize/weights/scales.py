"""Scales of weights that fit the codes which are chosen on them, rather than the nearest ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .coordinate import coordinate_descent
from .gptq import activation_order, in_order_with_error, lower_factor
from .problem import Problem

# What scales are multiplied by to find better ones: 0.56 to 1.19.
_FACTORS = 1.06 ** np.arange(-10, 4)
# Elements of weights that are rounded at once.
_AT_ONCE = 1 << 20
# A scale does not fall below this share of the first one: biases in 32 bits have room for no more.
_LEAST = 0.5
# How often scales are fitted to codes, and codes to scales, at most.
_ROUNDS = 2


def choose_scales(problem: Problem) -> Problem:
    """The problem with each output's scales times the factor with which GPTQ makes the least error.

    Where outputs share a scale there is one factor for all.
    """
    outputs = problem.wanted.shape[1]
    ordered = problem.reordered(activation_order(problem.gram))
    factor = lower_factor(ordered.gram).astype(np.float32)
    ordered = ordered.in_single_precision
    together = max(_AT_ONCE // max(problem.wanted.size, 1), 1)
    errors = []
    for start in range(0, len(_FACTORS), together):
        factors = _FACTORS[start : start + together]
        tried = ordered.repeated(len(factors))
        tried = tried.with_scale(tried.scale * np.repeat(factors, outputs)[:, np.newaxis])
        error = in_order_with_error(tried, factor)[1]
        errors.append(error.reshape(len(error), len(factors), outputs))
    found = np.concatenate(errors, axis=1)
    if problem.shares_outputs:
        found = np.broadcast_to(found.sum((0, 2), keepdims=True), found.shape)
    return problem.with_scale(problem.scale * _FACTORS[found.argmin(1)][..., np.newaxis])


def refit_scales(problem: Problem, codes: np.ndarray) -> tuple[Problem, np.ndarray]:
    """Scales of least squares for given codes, and codes improved on them, in turns; never worse.

    A scale has a closed form given all others (A. Zhang et al., COMQ, 2024); scales of the same output are
    visited one after the other.
    """
    least, error = problem.scale * _LEAST, problem.error(codes).sum()
    for _ in range(_ROUNDS):
        refitted = problem
        for part in problem.parts:
            refitted = _refitted(refitted, codes, part)
        refitted = refitted.with_scale(np.maximum(refitted.scale, least))
        single = coordinate_descent(refitted.in_single_precision, codes.astype(np.float32), sweeps=1)
        improved = single.astype(np.float64)
        less = refitted.error(improved).sum()
        if not less < error:
            break
        problem, codes, error = refitted, improved, less
    return problem, codes


def _refitted(problem: Problem, codes: np.ndarray, part: slice | np.ndarray) -> Problem:
    """With the best scales for some features, of which each has one scale in an output."""
    unit = (codes - problem.zero)[..., part]
    products = unit @ problem.gram[:, part]
    slope = (products * (problem.wanted - problem.numbers(codes))).sum(-1)
    curvature = (products[..., part] * unit).sum(-1)
    owner = problem.shared[..., part][..., 0]
    top, bottom = (np.bincount(owner.ravel(), one.ravel()) for one in (slope, curvature))
    step = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    scale = problem.scale.copy("K")
    scale[..., part] += step[owner][..., np.newaxis]
    return replace(problem, scale=scale)
