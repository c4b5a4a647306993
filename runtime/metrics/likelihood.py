"""How likely what the reference expects remains: the exponential of the Kullback-Leibler divergence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .metric import OutputMetric
from .rows import are_probabilities, class_rows, lost_rows, softmax

_LEAST = 1e-12  # a probability of 0 would be an infinite divergence


class Likelihood(OutputMetric):
    """``exp(-KL)``, with the mean over all rows of the divergence from the reference's distribution.

    Rows are probabilities or logits of classes, such as the tokens of a language model, whose perplexity on
    texts as the reference would write them is divided by this. 1 if nothing differs. In a row of NaN
    nothing is likely.
    """

    name = "likelihood"
    form = "{:.4f}"
    needs = "floating-point outputs with several classes along the last axis"

    def __init__(self) -> None:
        self._divergence, self._rows = 0.0, 0

    def add(self, reference: Any, output: Any, place: str) -> None:
        x, y = class_rows(reference), class_rows(output)
        if x is None or y is None or not x.size or x.shape[1] < 2:
            return
        is_distribution = are_probabilities(x)
        p, q = (x, np.maximum(y, 0)) if is_distribution else (softmax(x), softmax(y))
        if is_distribution:
            q = q / np.maximum(q.sum(axis=1, keepdims=True), _LEAST)
        q = np.where(lost_rows(x, y)[:, np.newaxis], 0.0, q)
        logs = np.log(np.maximum(p, _LEAST)) - np.log(np.maximum(q, _LEAST))
        self._divergence += float((p * logs).sum())
        self._rows += len(p)

    def value(self) -> float | None:
        return math.exp(-self._divergence / self._rows) if self._rows else None
