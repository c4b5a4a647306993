"""The overlap of what is marked with what there is, if the probabilities of the reference are right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .metric import OutputMetric

_REACH = 1 / 400  # of the diagonal of an image, by which borders may move


class ExpectedIou(OutputMetric):
    """Intersection over union (P. Jaccard) with what there is, beside that of what the reference marks.

    Marked is what is above 0.5. What there is follows the probabilities of the reference, so that the
    expected intersection is their sum over what is marked, and the expected union that of ones there and of
    the probabilities elsewhere. Marks of which the reference is sure count fully, those near 0.5 little. Of
    booleans it is intersection over union of the two. Over all samples together.

    In images, tensors of four axes, borders may move by 1 / 400 of the diagonal: what is marked so near to a
    mark of the reference counts as that mark, and a mark of the reference with none near it as missed. (The
    Berkeley benchmark of borders allows three times as much: D. Martin, C. Fowlkes, J. Malik, 2004.)
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
        if not isinstance(reference, np.ndarray):
            return
        p = np.clip(np.nan_to_num(reference.astype(np.float64)), 0, 1)
        self._all += float(p.sum())
        self._expected += _marks(p, p)
        self._found += _marks(_within_borders(p, output.astype(np.float64)), p)
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


def _within_borders(reference: np.ndarray, output: np.ndarray) -> np.ndarray:
    """The output, with the marks of the reference where both have marks near each other."""
    if reference.ndim != 4:
        return output
    reach = round(math.hypot(*reference.shape[-2:]) * _REACH)
    x, y = reference > 0.5, output > 0.5
    return np.where(x, _widened(y, reach), y & ~_widened(x, reach)).astype(np.float64) if reach else output


def _widened(marked: np.ndarray, reach: int) -> np.ndarray:
    """What lies within so many pixels of a mark, along both axes of images."""
    for axis in (-1, -2):
        width = [(reach, reach) if one == marked.ndim + axis else (0, 0) for one in range(marked.ndim)]
        windows = sliding_window_view(np.pad(marked, width), 2 * reach + 1, axis)
        marked = np.asarray(windows.any(axis=-1))
    return marked


def _marks(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    marked = x > 0.5
    return np.array([np.count_nonzero(marked), p[marked].sum()])
