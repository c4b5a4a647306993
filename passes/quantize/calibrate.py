"""Finds the numbers of all open quantizers from weights and from calibration data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from qc.ir.executor import Executor, Statistics
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, Quantizer, QuantSpec

from ..framework.base import option
from ..framework.context import PassContext
from .calibration.accumulators import fit_accumulators
from .calibration.bias import calibrate_biases
from .calibration.calibration import Calibration, CalibrationPass
from .calibration.covered import Range
from .calibration.joins import separate_joins
from .calibration.multipliers import fit_multipliers
from .calibration.overflow import leave_overflowing
from .calibration.range_of import SCHEMES, Method, range_of
from .calibration.ranges import covering, finite_data, mse_encoding, weight_encoding
from .calibration.vanishing import leave_vanishing
from .calibration.wrapping import hold_what_is_joined

_FINE_BITS = 16
# The methods whose ends follow from the largest numbers that were seen, and grow with more samples.
_WITH_HEADROOM: frozenset[Method] = frozenset({"min-max", "mse", "sqnr"})


@dataclass(frozen=True)
class Calibrate(CalibrationPass):
    """Gives every open quantizer an encoding.

    Weights are read from the model. Activations are observed in one streamed pass over the data. A graph
    output always keeps its full range, since clipping a score caps it, and so does the upper end of what Exp
    reads, as a number that is clipped becomes a multiple too small. Biases follow from the scales of the
    input and the weight. Frozen and already calibrated quantizers are left alone.

    Scores that only Softmax sees have the range of what is not masked, and a little below: masked numbers,
    however large, saturate there, where Softmax cannot tell them from what they were. A remark says so.

    A join, such as Concat, whose inputs have ranges so different that one of them would lose three bits or
    more on the grid of the result stays float if nothing in integers reads it, with a note.

    What new data shows beyond the samples is capped. Formats of 16 bits have steps to spare, so that grids of
    the methods ``min-max``, ``mse`` and ``sqnr``, and those of graph outputs, reach ``headroom`` times as far
    there, which costs a bit.

    Where a sum of products of 8 bits could leave the 32 bits of an accumulator, as one of more than 33,000
    can, the scale of the weight is enlarged.

    What samples show to be larger than float16 has it stays in float32 instead of becoming infinite, and so
    do constants of which float16 makes zero, with what is computed of them.

    Where the target keeps few bits of the factor that rescales a sum of products, scales of weights are moved
    by less than a thousandth, so that the factor is exact for results of 16 bits.

    The methods: ``min-max`` covers all that was seen; ``percentile`` all but a share at either end;
    ``entropy`` changes the distribution least; ``mse`` has the least squared error, and ``sqnr`` likewise
    with errors by clipping counted thrice; ``moving-average`` covers the average over the feeds of the
    smallest and of the largest value. AIMET's names ``min_max`` and ``post_training_tf`` stand for min-max,
    ``tf_enhanced`` for sqnr.

    ``calibrate-as-aimet`` gives the grids of AIMET instead.
    """

    name = "calibrate"
    uses = frozenset({"data", "target"})
    former_options: ClassVar = {"arithmetic": "the pass 'calibrate-as-aimet' has the arithmetic of AIMET"}

    method: Method = option("min-max", "how the range of an activation is found")
    percentile: Annotated[float, Gt(0), Le(100)] = option(
        99.999, "share of the values that the method percentile covers, in percent"
    )
    weights: Literal["min-max", "mse"] = option("min-max", "how the range of a weight is found")
    headroom: Annotated[float, Ge(1)] = option(
        2.0, "how many times as far as what was seen grids of activations of 16 bits reach"
    )

    rounded_parameters: bool = option(
        False, "observe activations while trained parameters are rounded to their grids"
    )

    def run(self, model: Model, context: PassContext) -> None:
        if self.method != "percentile":
            self.refuse_idle(["percentile"], f"method={self.method}", "give method=percentile as well")
        if self.method not in _WITH_HEADROOM:
            known = " or ".join(sorted(_WITH_HEADROOM))
            self.refuse_idle(["headroom"], f"method={self.method}", f"give method={known} as well")
        calibration = Calibration(model, context, self, self.weights, context.target)
        if calibration.observed:
            has_histogram = self.method not in ("min-max", "moving-average")
            rounded = _as_calibrated if self.rounded_parameters else None
            statistics = calibration.observe(f"pass '{self.name}'", has_histogram, rounded)
            if context.target is not None:
                context.notes += separate_joins(model, context.target, calibration.observed, statistics)
            ranges = partial(self._range, context.required_executor())
            calibration.calibrate_observed(self.method, ranges, statistics)
            fit_accumulators(model)
            if context.target is not None:
                hold_what_is_joined(calibration, context.target)
                fit_multipliers(model, context.target)
            model.quant.scheme = SCHEMES.get(self.method, self.method)
        leave_overflowing(model, context, f"pass '{self.name}'")
        leave_vanishing(model, context)
        calibrate_biases(model)

    def of_range(self, spec: QuantSpec, low: float, high: float) -> Encoding:
        return covering(spec, low, high)

    def of_constant(self, spec: QuantSpec, value: Value, executor: Executor) -> Encoding:
        array = finite_data(value)
        return mse_encoding(spec, array, executor) if self.weights == "mse" else weight_encoding(spec, array)

    def _range(self, executor: Executor, statistics: Statistics, spec: QuantSpec, exposed: bool) -> Range:
        method = "min-max" if exposed else self.method
        low, high = range_of(statistics, method, spec, executor, self.percentile)
        further = self.headroom if method in _WITH_HEADROOM and _has_steps_to_spare(spec) else 1.0
        return low * further, high * further


def _has_steps_to_spare(spec: QuantSpec) -> bool:
    """Whether a grid has so many steps that one bit less is hardly seen."""
    return isinstance(spec.format, IntFormat) and spec.format.bits >= _FINE_BITS


def _as_calibrated(quantizer: Quantizer, value: Value) -> Encoding | None:
    return quantizer.encoding
