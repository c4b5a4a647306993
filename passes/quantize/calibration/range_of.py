"""The methods that find the range of a tensor in its statistics."""

from __future__ import annotations

from typing import Annotated, Literal

from qc.ir.executor import Executor, Statistics
from qc.ir.quant.spec import QuantSpec

from ...framework.option_types import Aliases
from .entropy import entropy_range
from .ranges import mse_range, percentile_range

AIMET_NAMES = Aliases({"min_max": "min-max", "post_training_tf": "min-max", "tf_enhanced": "sqnr"})
Method = Annotated[Literal["min-max", "percentile", "entropy", "mse", "sqnr", "moving-average"], AIMET_NAMES]
# What encodings files call the methods: AIMET's names where it has them.
SCHEMES = {
    "min-max": "min_max",
    "sqnr": "post_training_tf_enhanced",
    "percentile": "post_training_percentile",
    "moving-average": "moving_average",
}
_PERCENTILE = 99.999
_CLIPPING_WEIGHT = 3.0  # what an error by clipping counts for the method sqnr, as in AIMET


def range_of(
    statistics: Statistics,
    method: Method,
    spec: QuantSpec,
    executor: Executor,
    percentile: float = _PERCENTILE,
) -> tuple[float, float]:
    """The range of a tensor that a grid is to cover.

    Args:
        statistics: of the whole tensor; all methods but min-max and moving-average need a histogram.
        method: as the pass ``calibrate`` describes it.
        spec: what the tensor is rounded to; the best range of the methods mse and sqnr depends on it.
        executor: judges ranges for the methods mse and sqnr.
        percentile: share of the values that the method percentile covers, in percent.

    Raises:
        UsageError: the method needs a histogram, and none was asked for when the tensor was observed.
    """
    low, high = float(statistics.minimum), float(statistics.maximum)
    if method == "moving-average":
        average_low, average_high = statistics.average_range()
        # The average still counts what was left out as a mask.
        return max(float(average_low), low), float(average_high)
    if method == "percentile":
        return percentile_range(statistics, percentile)
    if method == "entropy":
        return entropy_range(statistics)
    if method in ("mse", "sqnr"):
        return mse_range(statistics, spec, executor, clipping=_CLIPPING_WEIGHT if method == "sqnr" else 1.0)
    return low, high
