"""Cosine similarity."""

from __future__ import annotations

from .sums import Sums, SumsMetric


class Cosine(SumsMetric):
    """The cosine of the angle between an output and that of the reference, seen as long vectors."""

    name = "cosine"
    form = "{:.6f}"

    def of(self, sums: Sums) -> float:
        """-1 to 1; NaN if one is all zero."""
        return sums.cosine
