"""Finds the numbers of all open quantizers as AIMET does, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le

from qc.ir.executor import Executor, Statistics
from qc.ir.facts.dataflow import masked_scores
from qc.ir.facts.op_traits import kernel_axes, weighted_op
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, Quantizer, QuantSpec, TwoLevelBlock

from ..framework.base import option
from ..framework.context import PassContext
from .aimet.arithmetic import (
    Grid,
    HistogramRule,
    grid_of_range,
    grid_of_weight,
    percentile_grid,
    searched_grid,
    with_fixed_ends,
)
from .aimet.streaming import FeedStatistics, stream
from .aimet.sums import enlarge_weight_scales
from .calibration.bias import calibrate_biases
from .calibration.calibration import Calibration, CalibrationPass, EncodingOf
from .calibration.covered import Range
from .calibration.masks import clipped_to_mask
from .calibration.overflow import leave_overflowing
from .calibration.range_of import AIMET_NAMES, SCHEMES
from .calibration.ranges import covering, finite_data, weight_encoding
from .calibration.vanishing import leave_vanishing


@dataclass(frozen=True)
class CalibrateAsAimet(CalibrationPass):
    """Gives every open quantizer the encoding that aimet-onnx 2.42 gives it.

    Like ``calibrate``, but with the numbers of AIMET, for weights too: its rounding, its least scales, its
    histogram, which drops what lies far outside the first batch, its ranges that are fixed at one end, and no
    exception for outputs. The methods have AIMET's names as well: ``min_max`` and ``post_training_tf`` stand
    for min-max, ``tf_enhanced`` for sqnr.

    The first sample fixes the bins of AIMET's histogram, and later ones are averaged in their order: with the
    methods sqnr and percentile the data is not divided among processes, and nothing is kept.
    """

    name = "calibrate-as-aimet"

    method: Annotated[Literal["min-max", "sqnr", "percentile"], AIMET_NAMES] = option(
        "min-max", "how the range of a tensor is found, be it a weight or not"
    )
    percentile: Annotated[float, Gt(0), Le(100)] = option(
        99.999, "share of the values that the method percentile covers, in percent"
    )

    rounded_parameters: bool = option(
        False, "observe activations while trained parameters are rounded to their grids"
    )

    @property
    def is_sequential(self) -> bool:
        return self._histogram_rule is not None

    def run(self, model: Model, context: PassContext) -> None:
        if self.method != "percentile":
            self.refuse_idle(["percentile"], f"method={self.method}", "give method=percentile as well")
        calibration = Calibration(model, context, self, self.method)
        if calibration.observed:
            rounded = self._while_observed if self.rounded_parameters else None
            user, rule = f"pass '{self.name}'", self._histogram_rule
            if rule is None:
                statistics = calibration.observe(user, False, rounded)
                calibration.calibrate_observed(self.method, _min_max, statistics)
            else:
                user += f" with the method {self.method}"
                self._calibrate_streamed(calibration, user, rule, rounded)
            model.quant.scheme = SCHEMES[self.method]
        leave_overflowing(model, context, f"pass '{self.name}'")
        leave_vanishing(model, context)
        enlarge_weight_scales(model)
        calibrate_biases(model)

    def of_range(self, spec: QuantSpec, low: float, high: float) -> Encoding:
        if not isinstance(spec.format, IntFormat):
            return covering(spec, low, high)  # AIMET has no small floats
        return _of_grid(spec, grid_of_range(spec, np.asarray(low), np.asarray(high)))

    def of_constant(self, spec: QuantSpec, value: Value, executor: Executor) -> Encoding:
        return self._of_constant(spec, value)

    def _of_constant(self, spec: QuantSpec, value: Value) -> Encoding:
        array = finite_data(value)
        if not isinstance(spec.format, IntFormat):
            return weight_encoding(spec, array)
        kernel = kernel_axes(weighted_op(value), value)
        return _of_grid(spec, grid_of_weight(spec, array, self._histogram_rule, kernel))

    @property
    def _histogram_rule(self) -> HistogramRule | None:
        """What makes a grid of AIMET's histogram; None if the method looks at none."""
        rules: dict[str, HistogramRule] = {
            "sqnr": searched_grid,
            "percentile": partial(percentile_grid, percentile=self.percentile),
        }
        return rules.get(self.method)

    def _while_observed(self, quantizer: Quantizer, value: Value) -> Encoding | None:
        """The grid of a weight while activations are observed.

        AIMET makes two levels of the scales of blocks only when the model runs quantized. Until then each
        block has the scale that it was found to need.
        """
        known, granularity = quantizer.encoding, quantizer.spec.granularity
        if known is None or not isinstance(granularity, TwoLevelBlock):
            return known
        one_level = quantizer.spec.with_granularity(PerBlock(granularity.axis, granularity.size))
        found = self._of_constant(one_level, value)
        is_its = Encoding(quantizer.spec, found.scale, found.zero_point).equals(known)
        return found if is_its else known

    def _calibrate_streamed(
        self, calibration: Calibration, user: str, rule: HistogramRule, rounded: EncodingOf | None
    ) -> None:
        """Gives the observed quantizers their numbers from one feed after the other."""
        seen = {quantizer: FeedStatistics() for quantizer in calibration.observed}
        tied = chain.from_iterable(calibration.observed.values())
        constants = {value: finite_data(value) for value in tied if value.const is not None}
        scores = masked_scores(calibration.model.graph)
        with calibration.running(rounded):
            for arrays in stream(calibration.model, calibration.context, calibration.tensors, user):
                given = arrays | constants
                for quantizer, values in calibration.observed.items():
                    found = [given[value] for value in values if value in given]
                    if scores.issuperset(values):
                        found = [clipped_to_mask(array, quantizer.spec) for array in found]
                    elif quantizer.spec.fixed_range is not None:
                        found = [np.clip(array, *quantizer.spec.fixed_range) for array in found]
                    seen[quantizer].add(found)
        unseen = []
        for quantizer in calibration.observed:
            if seen[quantizer].feeds:
                grid_of = partial(self._of_feeds, rule, seen[quantizer])
                calibration.set(quantizer, grid_of, f"{self.method} as AIMET finds it")
            else:
                unseen.append(quantizer)
        calibration.leave_unseen(unseen)

    def _of_feeds(self, rule: HistogramRule, seen: FeedStatistics, spec: QuantSpec) -> Encoding:
        if not isinstance(spec.format, IntFormat):
            return self.of_range(spec, *seen.range)
        return _of_grid(spec, rule(spec, seen.histogram))


def _min_max(statistics: Statistics, spec: QuantSpec, exposed: bool) -> Range:
    return float(statistics.minimum), float(statistics.maximum)


def _of_grid(spec: QuantSpec, grid: Grid) -> Encoding:
    """The encoding of AIMET's grid of what was seen."""
    return (with_fixed_ends(spec, grid) if spec.fixed_range is not None else grid).encoding(spec)
