"""How far what is marked overlaps: intersection over union."""

from __future__ import annotations

from typing import Any

import numpy as np

from .metric import OutputMetric
from .sums import differ_in_size


class Iou(OutputMetric):
    """What both mark by what one of them marks (P. Jaccard): elements above 0.5, such as those of a mask.

    Over all samples together; 1 if nothing is marked in either. Booleans are masks as well.
    """

    name = "iou"
    form = "{:.4f}"
    needs = "outputs of numbers"
    takes_floats = False

    def __init__(self) -> None:
        self._both = self._any = 0
        self._compared = False

    def add(self, reference: Any, output: Any, place: str) -> None:
        if differ_in_size(reference, output) or not isinstance(reference, np.ndarray):
            return
        x, y = reference.astype(np.float64) > 0.5, output.astype(np.float64) > 0.5
        self._both += int(np.count_nonzero(x & y))
        self._any += int(np.count_nonzero(x | y))
        self._compared = True

    def value(self) -> float | None:
        if not self._compared:
            return None
        return self._both / self._any if self._any else 1.0
