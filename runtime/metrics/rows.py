"""Rows of scores for classes, and what they say as probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from .sums import is_floating

_LEAST_SUM, _MOST_SUM = 0.98, 1.02  # of probabilities that were rounded on their way


def class_rows(array: Any) -> np.ndarray | None:
    """The scores of classes as rows, in float64 with the smallest number for NaN; None where there are none.

    Classes lie along the last axis, or along axis 1 of tensors of four and more axes, such as images.
    """
    if not isinstance(array, np.ndarray) or not array.ndim or not is_floating(array.dtype):
        return None
    if array.ndim > 3:
        array = np.moveaxis(array, 1, -1)
    if not array.shape[-1]:
        return None
    x = array.astype(np.float64).reshape(-1, array.shape[-1])
    return np.where(np.isnan(x), -np.inf, x)


def lost_rows(reference: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Where the largest score of a row of the output is no number, unlike the reference's; bool.

    Both are as :func:`class_rows` makes them: infinity, or NaN in the whole row.
    """
    is_lost, was_lost = (~np.isfinite(rows.max(axis=1)) for rows in (output, reference))
    return np.asarray(is_lost & ~was_lost)


def are_probabilities(rows: np.ndarray) -> bool:
    """Whether rows of several numbers are those of distributions."""
    if rows.shape[1] < 2 or not rows.size or rows.min() < 0:
        return False
    sums = rows.sum(axis=1)
    return bool(sums.min() > _LEAST_SUM and sums.max() < _MOST_SUM)


def softmax(rows: np.ndarray) -> np.ndarray:
    """``exp(x) / sum(exp(x))`` of each row; a row that is not finite is uniform where it is largest."""
    with np.errstate(invalid="ignore"):
        shifted = rows - rows.max(axis=1, keepdims=True)
    powers = np.exp(np.where(np.isnan(shifted), 0.0, shifted))
    return powers / powers.sum(axis=1, keepdims=True)
