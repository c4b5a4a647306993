"""The largest absolute error."""

from .metric import OutputMetric
from .sums import Sums


class MaxError(Sums, OutputMetric):
    """The largest absolute difference from the reference."""

    name = "max-error"
    higher_is_better = False
    form = "{:.3g}"

    def value(self) -> float | None:
        return self.largest if self.floating else None
