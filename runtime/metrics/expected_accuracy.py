"""The accuracy that is kept, if the probabilities of the reference are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from .metric import OutputMetric
from .rows import are_probabilities, class_rows, lost_rows, softmax


class ExpectedAccuracy(OutputMetric):
    """How probable the classes that are found are, beside those that the reference finds; 1 if none differs.

    Both probabilities are the reference's: of its own scores, if they are probabilities, else of their
    softmax. So another class costs much where the reference is sure, and nothing where two are as good,
    which a share of equal classes (``top-1``) counts alike. Classes lie along the last axis, or along axis 1
    of four and more. One number alone is the probability of yes. A row of NaN finds nothing.
    """

    name = "expected-accuracy"
    form = "{:.4f}"
    needs = "floating-point outputs with an axis"

    def __init__(self) -> None:
        self._found = self._best = 0.0

    def add(self, reference: Any, output: Any, place: str) -> None:
        x, y = class_rows(reference), class_rows(output)
        if x is None or y is None or not x.size:
            return
        lost = lost_rows(x, y)
        if x.shape[1] == 1:
            x, y = (np.concatenate([1 - one, one], axis=1) for one in (np.clip(x, 0, 1), y))
        p = x if are_probabilities(x) else softmax(x)
        found = np.take_along_axis(p, np.argmax(y, axis=1)[:, np.newaxis], axis=1)
        self._found += float(found[~lost].sum())
        self._best += float(p.max(axis=1).sum())

    def value(self) -> float | None:
        return self._found / self._best if self._best else None
