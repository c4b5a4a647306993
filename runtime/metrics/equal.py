"""The share of equal elements."""

from .metric import OutputMetric
from .sums import Sums


class Equal(Sums, OutputMetric):
    """The share of elements that are equal, such as classes that a model itself has chosen."""

    name = "equal"
    form = "{:.4f}"
    needs = "outputs with elements"
    takes_floats = False

    def value(self) -> float | None:
        return self.equal / self.elements if self.elements else None
