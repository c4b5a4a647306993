"""Signal to quantization noise ratio."""

from .metric import OutputMetric
from .sums import Sums


class Sqnr(Sums, OutputMetric):
    """``10 log10(sum(x^2) / sum((x - y)^2))`` in dB, where x is the reference; inf if equal."""

    name = "sqnr"
    form = "{:.1f} dB"

    def value(self) -> float | None:
        return self.sqnr_db if self.floating else None
