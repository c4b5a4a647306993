"""The largest absolute error."""

from __future__ import annotations

from .sums import Sums, SumsMetric


class MaxError(SumsMetric):
    """The largest absolute difference from the reference."""

    name = "max-error"
    higher_is_better = False
    form = "{:.3g}"

    def of(self, sums: Sums) -> float:
        """0 if there is none."""
        return sums.largest
