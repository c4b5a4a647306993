"""Cosine similarity."""

from .metric import OutputMetric
from .sums import Sums


class Cosine(Sums, OutputMetric):
    """The cosine of the angle between an output and that of the reference, seen as long vectors."""

    name = "cosine"
    form = "{:.6f}"

    def value(self) -> float | None:
        return self.cosine if self.floating else None
