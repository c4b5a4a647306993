"""What AIMET's search sees, which looks at the tensors of one feed after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from qc.ir.errors import DataError, UsageError
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower

from ...framework.context import PassContext
from .arithmetic import Histogram


class FeedStatistics:
    """Range and AIMET's histogram of the tensors that share a quantizer."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        self.feeds = 0
        self._low, self._high = np.inf, -np.inf

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return float(self._low), float(self._high)

    def add(self, arrays: Iterable[np.ndarray]) -> None:
        """Takes in what the tensors hold on one feed."""
        filled = [array for array in arrays if array.size]
        if not filled:
            return
        self._low = min(self._low, *(float(array.min()) for array in filled))
        self._high = max(self._high, *(float(array.max()) for array in filled))
        self.feeds += 1
        self.histogram.add(*filled)


def stream(
    model: Model, context: PassContext, values: Iterable[Value], user: str
) -> Iterator[dict[Value, np.ndarray]]:
    """The numbers of some tensors on one feed after the other.

    Raises:
        UsageError: a tensor is inside the body of an If, Loop or Scan.
        DataError: a tensor holds NaN or infinity.
    """
    inside = next((value for value in values if value.graph is not model.graph), None)
    if inside is not None:
        raise UsageError(
            f"{user} cannot look at '{inside.name}' inside a body on each feed; use another method, or the "
            "arithmetic of qc"
        )
    data = context.required_data(user)
    sources = {value.name: value for value in values}
    results = context.required_executor().run(lower(model), data, list(sources), base_dir=model.base_dir)
    tracked = context.track(results, "calibrating", context.samples_given)
    for index, result in enumerate(tracked):
        arrays = {sources[name]: array for name, array in result.items()}
        for value, array in arrays.items():
            if not np.isfinite(array.astype(np.float32, copy=False)).all():
                raise DataError(
                    f"tensor '{value.name}' holds NaN or infinity on feed {index}; remove that sample or "
                    "mend the model"
                )
        yield arrays
