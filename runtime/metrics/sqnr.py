"""Signal to quantization noise ratio."""

from __future__ import annotations

from .sums import Sums, SumsMetric


class Sqnr(SumsMetric):
    """``10 log10(sum(x^2) / sum((x - y)^2))`` in dB, where x is the reference; inf if equal."""

    name = "sqnr"
    form = "{:.1f} dB"

    def of(self, sums: Sums) -> float:
        """In dB."""
        return sums.sqnr_db
