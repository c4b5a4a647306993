"""The overlap of what is marked with what there is, if the probabilities of the reference are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from .metric import OutputMetric
from .sums import differ_in_size


class ExpectedIou(OutputMetric):
    """Intersection over union (P. Jaccard) with what there is, beside that of what the reference marks.

    Marked is what is above 0.5. What there is follows the probabilities of the reference, so that the
    expected intersection is their sum over what is marked, and the expected union that of ones there and of
    the probabilities elsewhere. Marks of which the reference is sure count fully, those near 0.5 little. Of
    booleans it is intersection over union of the two. Over all samples together.
    """

    name = "expected-iou"
    form = "{:.4f}"
    needs = "outputs of numbers"
    takes_floats = False

    def __init__(self) -> None:
        self._all = 0.0
        self._found, self._expected = np.zeros(2), np.zeros(2)  # marks, and probabilities of what is marked
        self._compared = False

    def add(self, reference: Any, output: Any, place: str) -> None:
        if differ_in_size(reference, output) or not isinstance(reference, np.ndarray):
            return
        p = np.clip(np.nan_to_num(reference.astype(np.float64)), 0, 1)
        self._all += float(p.sum())
        self._expected += _marks(p, p)
        self._found += _marks(output.astype(np.float64), p)
        self._compared = True

    def value(self) -> float | None:
        if not self._compared:
            return None
        found, expected = self._iou(self._found), self._iou(self._expected)
        return found / expected if expected else float(not self._found[0])

    def _iou(self, marks: np.ndarray) -> float:
        count, both = marks
        union = count + self._all - both
        return float(both / union) if union else 0.0


def _marks(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    marked = x > 0.5
    return np.array([np.count_nonzero(marked), p[marked].sum()])
