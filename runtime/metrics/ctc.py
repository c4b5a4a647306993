"""Texts that are read off class scores along time, as by connectionist temporal classification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qc.ir.errors import UsageError

from .metric import OutputMetric
from .sums import is_floating


class Ctc(OutputMetric):
    """The share of symbols that are read alike: 1 less the edit distance by the symbols of the reference.

    The best class at each position makes a sequence; of equal neighbours one is left, and blanks, which are
    class K, go (A. Graves and others, "Connectionist Temporal Classification", ICML 2006).
    NaN if the reference has no symbols.
    """

    name = "ctc-K"
    form = "{:.4f}"
    needs = "floating-point outputs of scores, (batch, time, classes)"

    def __init__(self, blank: int) -> None:
        self._blank = blank
        self._distance = self._symbols = 0
        self._has_scores = False

    def add(self, reference: Any, output: Any, place: str) -> None:
        if not all(isinstance(one, np.ndarray) and one.ndim == 3 for one in (reference, output)):
            return
        if not is_floating(reference.dtype) or len(reference) != len(output) or not reference.size:
            return
        if self._blank >= reference.shape[2]:
            raise UsageError(
                f"the metric 'ctc-{self._blank}' needs more than the {reference.shape[2]} classes of {place}"
            )
        self._has_scores = True
        for x, y in zip(reference, output, strict=True):
            expected, found = symbols(x, self._blank), symbols(y, self._blank)
            self._distance += edit_distance(expected, found)
            self._symbols += len(expected)

    def value(self) -> float | None:
        if not self._symbols:
            return math.nan if self._has_scores else None
        return 1 - self._distance / self._symbols


def symbols(scores: np.ndarray, blank: int) -> list[int]:
    """What is read off scores, shape (time, classes)."""
    best = np.argmax(np.nan_to_num(scores.astype(np.float64), nan=-np.inf), axis=1)
    starts = np.append(True, best[1:] != best[:-1])
    return [int(one) for one in best[starts] if one != blank]


def edit_distance(first: list[int], second: list[int]) -> int:
    """How many symbols are put in, taken out or changed, at least (R. Wagner, M. Fischer, 1974)."""
    row = list(range(len(second) + 1))
    for index, one in enumerate(first, 1):
        before, row[0] = row[0], index
        for place, other in enumerate(second, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (one != other)),
            )
    return row[-1]
