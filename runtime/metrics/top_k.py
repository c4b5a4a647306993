"""Agreement with the reference on the largest elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from qc.ir.errors import UsageError

from .metric import OutputMetric
from .rows import lost_rows
from .sums import is_floating


class TopK(OutputMetric):
    """The share of rows along the last axis whose largest element in the reference is among the K largest.

    Of equal elements the first counts as larger; NaN is the smallest, and a row of nothing else agrees with
    no other. What has other sizes than the reference is left out.
    """

    name = "top-K"
    needs = "floating-point outputs with an axis"

    def __init__(self, k: int) -> None:
        if k < 1:
            raise UsageError(f"the metric 'top-{k}' needs a number of at least 1, as in 'top-5'")
        self._k = k
        self._rows = self._agreed = 0

    def add(self, reference: Any, output: Any, place: str) -> None:
        is_tensor = isinstance(reference, np.ndarray) and reference.ndim > 0 and reference.shape[-1] > 0
        if not is_tensor or not is_floating(reference.dtype):
            return
        classes = reference.shape[-1]
        if self._k > classes:
            raise UsageError(
                f"the metric 'top-{self._k}' needs more than the {classes} elements that the last axis of "
                f"{place} has"
            )
        x, y = (_without_nan(array).reshape(-1, classes) for array in (reference, output))
        if not x.size:
            return
        best = np.argmax(x, axis=1)[:, np.newaxis]
        chosen = np.take_along_axis(y, best, axis=1)
        rank = np.sum((y > chosen) | ((y == chosen) & (np.arange(classes) < best)), axis=1)
        self._rows += len(rank)
        self._agreed += int(np.count_nonzero((rank < self._k) & ~lost_rows(x, y)))

    def value(self) -> float | None:
        return self._agreed / self._rows if self._rows else None


def _without_nan(array: np.ndarray) -> np.ndarray:
    x = array.astype(np.float64)
    return np.where(np.isnan(x), -np.inf, x)
