"""Finds the numbers of all open quantizers from weights and from calibration data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le

from qc.ir.errors import UsageError
from qc.ir.executor import Observation, Statistics
from qc.ir.facts.op_traits import is_grid_preserving, kernel_axes, weighted_op
from qc.ir.facts.scopes import name_apart, scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, Quantizer, QuantizerState, QuantSpec, TwoLevelBlock
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..framework.option_types import Aliases
from .aimet.arithmetic import (
    Grid,
    HistogramRule,
    grid_of_fixed_range,
    grid_of_range,
    grid_of_weight,
    percentile_grid,
    searched_grid,
    with_fixed_ends,
)
from .aimet.sums import enlarge_weight_scales
from .calibration.bias import calibrate_biases, leave_float
from .calibration.entropy import entropy_range
from .calibration.masks import clipped_to_mask, lowest_with_mask, top_of_mask
from .calibration.ranges import encoding_of_range, finite_data, mse_range, percentile_range, weight_encoding
from .calibration.streaming import FeedStatistics, stream
from .placement.dataflow import masked_scores
from .placement.parameters import round_parameters

Method = Annotated[
    Literal["min-max", "percentile", "entropy", "mse", "sqnr", "moving-average"],
    Aliases({"min_max": "min-max", "post_training_tf": "min-max", "tf_enhanced": "sqnr"}),  # of AIMET
]
# What encodings files call the methods: AIMET's names where it has them.
_SCHEMES = {
    "min-max": "min_max",
    "sqnr": "post_training_tf_enhanced",
    "percentile": "post_training_percentile",
    "moving-average": "moving_average",
}
_CLIPPING_WEIGHT = 3.0  # what an error by clipping counts for the method sqnr, as in AIMET


@dataclass(frozen=True)
class Calibrate(Pass):
    """Gives every open quantizer an encoding.

    Weights are read from the model. Activations are observed in one streamed pass over the data. A graph
    output always keeps its full range, since clipping a score caps it. Biases follow from the scales of the
    input and the weight. Frozen and already calibrated quantizers are left alone.

    Scores that only Softmax sees have the range of what is not masked, and a little below: masked numbers,
    however large, saturate there, where Softmax cannot tell them from what they were. A remark says so.

    The methods: ``min-max`` covers all that was seen; ``percentile`` all but a share at either end;
    ``entropy`` changes the distribution least; ``mse`` has the least squared error, and ``sqnr`` likewise
    with errors by clipping counted thrice; ``moving-average`` covers the average over the feeds of the
    smallest and of the largest value. AIMET's names ``min_max`` and ``post_training_tf`` stand for min-max,
    ``tf_enhanced`` for sqnr.

    With ``arithmetic=aimet`` min-max, sqnr and percentile give the grids of aimet-onnx 2.42, of weights too:
    its rounding, its least scales, its histogram, which drops what lies far outside the first batch, its
    ranges that are fixed at one end, and no exception for outputs.
    """

    name = "calibrate"
    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})

    method: Method = option("min-max", "how the range of an activation is found")
    arithmetic: Literal["qc", "aimet"] = option("qc", "whose rules turn what was seen into numbers")
    percentile: Annotated[float, Gt(0), Le(100)] = option(
        99.999, "share of the values that the method percentile covers, in percent"
    )
    weights: Literal["min-max", "mse"] = option("min-max", "how the range of a weight is found")

    rounded_parameters: bool = option(
        False, "observe activations while trained parameters are rounded to their grids"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.method in ("min-max", "sqnr", "percentile")
        if self.arithmetic == "aimet" and (not known or self.weights == "mse"):
            asked = f"weights={self.weights}" if self.weights == "mse" else f"method={self.method}"
            raise UsageError(
                f"pass '{self.name}': AIMET has no {asked}; with arithmetic=aimet use the method min-max, "
                "sqnr or percentile, which holds for weights too"
            )

    def run(self, model: Model, context: PassContext) -> None:
        unknown = [
            q for q in model.quant.quantizers() if q.state is QuantizerState.OPEN and not q.spec.derived
        ]
        observed: dict[Quantizer, list[Value]] = {}
        for quantizer in unknown:
            values = _values(model, quantizer)
            if _needs_no_numbers(quantizer):
                encoding = encoding_of_range(quantizer.spec, np.zeros(()), np.zeros(()))
                self._set(model, quantizer, encoding, "a format that needs no scale")
            elif quantizer.spec.fixed_range is not None and np.isfinite(quantizer.spec.fixed_range).all():
                self._set(model, quantizer, self._fixed(quantizer.spec), "fixed range")
            elif len(values) == 1 and values[0].const is not None:
                self._set(model, quantizer, self._weight(quantizer.spec, values[0]))
            else:
                observed[quantizer] = values
        if observed:
            self._calibrate(model, context, observed)
            model.quant.scheme = _SCHEMES.get(self.method, self.method)
        if self._is_aimet:
            enlarge_weight_scales(model)
        calibrate_biases(model)

    def _calibrate(self, model: Model, context: PassContext, observed: dict[Quantizer, list[Value]]) -> None:
        if self.is_sequential:
            self._calibrate_streamed(model, context, observed)
            return
        masked = masked_scores(model.graph)
        statistics = self._observe(model, context, observed, masked)
        scopes = scopes_of(model.graph)
        saturated: list[Value] = []
        unseen: dict[Quantizer, list[Value]] = {}
        for quantizer, values in observed.items():
            merged = _merged(values, statistics)
            mask = top_of_mask(merged) if merged is not None and masked.issuperset(values) else None
            if merged is not None and mask is not None:
                merged = merged.above(mask)
                saturated.append(values[0])
            ends = self._range(quantizer, values, merged, any(map(scopes.is_exposed, values)))
            if ends is None:
                unseen[quantizer] = values
                continue
            low, high = ends
            if mask is not None:
                low = lowest_with_mask(low, quantizer.spec)
            encoding, found = self._of_ends(quantizer.spec, low, high)
            if mask is not None:
                found += f"; scores begin at {ends[0]:.6g}: {low:.6g} masks as well as {mask:.6g}"
            self._set(model, quantizer, encoding, found)
        _note_masks(context, saturated)
        _leave_unseen(model, context, unseen)

    def _observe(
        self,
        model: Model,
        context: PassContext,
        observed: dict[Quantizer, list[Value]],
        masked: frozenset[Value],
    ) -> dict[Value, Statistics]:
        """Statistics of every tensor that some quantizer has to cover, from one pass over the data."""
        wanted = _to_observe(observed)
        # All alike, since the statistics of tied tensors are merged.
        has_histogram = self.method not in ("min-max", "moving-average")
        request = Observation(histogram=has_histogram or not masked.isdisjoint(wanted))
        data = context.required_data(f"pass '{self.name}'")
        total = getattr(data, "length", None)
        with self._running(model), context.task("calibrating", total) as task:
            sources = {value.name: value for value in wanted}
            found = context.required_executor().observe(
                lower(model),
                dict.fromkeys(sources, request),
                data,
                base_dir=model.base_dir,
                on_feeds=task.advance,
            )
        return {sources[name]: statistics for name, statistics in found.items()}

    @contextmanager
    def _running(self, model: Model) -> Iterator[None]:
        """A block in which the model is as it runs: with distinct names, and rounded where that is asked."""
        rewriter = Rewriter(model)
        with rewriter.trial():
            name_apart(rewriter)
            if self.rounded_parameters:
                round_parameters(rewriter, self._while_observed)
            yield

    def _range(
        self, quantizer: Quantizer, values: list[Value], merged: Statistics | None, exposed: bool
    ) -> tuple[float, float] | None:
        """The range that covers all values that hold the quantizer; None if no number of them was seen."""
        ends = [_constant_range(value) for value in values if value.const is not None]
        if merged is not None and merged.count:
            ends.append(self._estimate(quantizer, merged, exposed))
        if not ends:
            return None
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _estimate(self, quantizer: Quantizer, statistics: Statistics, exposed: bool) -> tuple[float, float]:
        if self.method == "min-max" or exposed:
            return float(statistics.minimum), float(statistics.maximum)
        if self.method == "moving-average":
            low, high = statistics.average_range()
            # The average still counts what was left out as a mask.
            return max(float(low), float(statistics.minimum)), float(high)
        if self.method == "percentile":
            return percentile_range(statistics, self.percentile)
        if self.method == "entropy":
            return entropy_range(statistics)
        clipping = _CLIPPING_WEIGHT if self.method == "sqnr" else 1.0
        return mse_range(statistics, quantizer.spec, clipping=clipping)

    @property
    def _is_aimet(self) -> bool:
        return self.arithmetic == "aimet"

    @property
    def is_sequential(self) -> bool:
        """Whether the method looks at the tensors of one feed after the other, and not at their statistics.

        The first feed fixes the bins of AIMET's histogram, and later ones are averaged in their order, so
        that no part of the data can be looked at apart, and nothing is kept.
        """
        return self._histogram_rule is not None

    @property
    def _histogram_rule(self) -> HistogramRule | None:
        """What makes a grid of AIMET's histogram; None if the method looks at none."""
        rules: dict[str, HistogramRule] = {
            "sqnr": searched_grid,
            "percentile": partial(percentile_grid, percentile=self.percentile),
        }
        return rules.get(self.method) if self._is_aimet else None

    def _of_ends(self, spec: QuantSpec, low: float, high: float) -> tuple[Encoding, str]:
        """The encoding of what was seen, and why it is so."""
        ends = _with_fixed_ends(spec, low, high)
        reason = f"{self.method} gave [{ends[0]:.6g}, {ends[1]:.6g}]"
        if self._is_aimet and isinstance(spec.format, IntFormat):
            return self._of_grid(spec, grid_of_range(spec, np.asarray(low), np.asarray(high))), reason
        return encoding_of_range(spec, *map(np.asarray, ends)), reason

    def _of_grid(self, spec: QuantSpec, grid: Grid) -> Encoding:
        """The encoding of AIMET's grid of what was seen."""
        return (with_fixed_ends(spec, grid) if spec.fixed_range is not None else grid).encoding(spec)

    def _fixed(self, spec: QuantSpec) -> Encoding:
        assert spec.fixed_range is not None
        if self._is_aimet and isinstance(spec.format, IntFormat):
            return grid_of_fixed_range(spec).encoding(spec)
        return encoding_of_range(spec, *np.asarray(spec.fixed_range))

    def _weight(self, spec: QuantSpec, value: Value) -> Encoding:
        assert value.const is not None
        array = finite_data(value.const)
        if self._is_aimet and isinstance(spec.format, IntFormat):
            kernel = kernel_axes(weighted_op(value), value)
            return grid_of_weight(spec, array, self._histogram_rule, kernel).encoding(spec)
        return weight_encoding(spec, array, self.weights == "mse")

    def _while_observed(self, quantizer: Quantizer, value: Value) -> Encoding | None:
        """The grid of a weight while activations are observed.

        AIMET makes two levels of the scales of blocks only when the model runs quantized. Until then each
        block has the scale that it was found to need.
        """
        known, granularity = quantizer.encoding, quantizer.spec.granularity
        if not self._is_aimet or known is None or not isinstance(granularity, TwoLevelBlock):
            return known
        one_level = quantizer.spec.with_granularity(PerBlock(granularity.axis, granularity.size))
        found = self._weight(one_level, value)
        is_its = Encoding(quantizer.spec, found.scale, found.zero_point).equals(known)
        return found if is_its else known

    def _calibrate_streamed(
        self, model: Model, context: PassContext, observed: dict[Quantizer, list[Value]]
    ) -> None:
        """Like :meth:`_calibrate`, one feed after the other."""
        seen = {quantizer: FeedStatistics() for quantizer in observed}
        masked = masked_scores(model.graph)
        wanted = _to_observe(observed)
        user = f"pass '{self.name}' with the method {self.method}"
        with self._running(model):
            for arrays in stream(model, context, wanted, user):
                for quantizer, values in observed.items():
                    is_masked = masked.issuperset(values)
                    for array in (arrays[value] for value in values if value in arrays):
                        seen[quantizer].add(clipped_to_mask(array, quantizer.spec) if is_masked else array)
        unseen: dict[Quantizer, list[Value]] = {}
        for quantizer, values in observed.items():
            if not seen[quantizer].feeds and all(value.const is None for value in values):
                unseen[quantizer] = values
                continue
            self._set(model, quantizer, *self._streamed_encoding(quantizer, values, seen[quantizer]))
        _leave_unseen(model, context, unseen)

    def _streamed_encoding(
        self, quantizer: Quantizer, values: list[Value], seen: FeedStatistics
    ) -> tuple[Encoding, str]:
        spec = quantizer.spec
        if self._histogram_rule is not None and isinstance(spec.format, IntFormat):
            for constant in (value.const for value in values if value.const is not None):
                seen.add(finite_data(constant))
            grid = self._histogram_rule(spec, seen.histogram)
            return self._of_grid(spec, grid), f"{self.method} as AIMET finds it"
        ends = [_constant_range(value) for value in values if value.const is not None]
        if seen.feeds:
            ends.append(seen.range)
        return self._of_ends(spec, min(low for low, _ in ends), max(high for _, high in ends))

    def _set(self, model: Model, quantizer: Quantizer, encoding: Encoding, reason: str = "") -> None:
        rule = self.method if self._is_aimet else self.weights
        model.quant.calibrate(quantizer, encoding, reason or f"from the constant, {rule}")


def _with_fixed_ends(spec: QuantSpec, low: float, high: float) -> tuple[float, float]:
    """What was observed, but for an end of the range that the spec fixes; the other one is infinite there."""
    fixed = spec.fixed_range
    if fixed is None:
        return low, high
    low, high = (end if np.isfinite(end) else seen for end, seen in zip(fixed, (low, high), strict=True))
    return low, max(low, high)


def _needs_no_numbers(quantizer: Quantizer) -> bool:
    """Whether the format has no scale (16-bit floats)."""
    format = quantizer.spec.format
    return not isinstance(format, IntFormat) and not format.scaled


def _values(model: Model, quantizer: Quantizer) -> list[Value]:
    """The tensors that hold the quantizer, each by its original."""
    return list(dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer)))


def _merged(values: list[Value], statistics: dict[Value, Statistics]) -> Statistics | None:
    """What was seen of some tensors together."""
    merged: Statistics | None = None
    for value in values:
        if value in statistics:
            merged = statistics[value] if merged is None else merged.merge(statistics[value])
    return merged


def _note_masks(context: PassContext, values: list[Value]) -> None:
    """Tells that the numbers of masks were left out of ranges."""
    if values:
        more = f" and {len(values) - 1} more" if len(values) > 1 else ""
        context.notes.append(
            f"a mask reaches far below the scores in '{values[0].name}'{more}; as only Softmax sees them, "
            "the grid covers the scores, and masked numbers saturate a little below"
        )


def _to_observe(observed: dict[Quantizer, list[Value]]) -> dict[Value, None]:
    """The tensors whose numbers are needed, once each."""
    return dict.fromkeys(
        value
        for values in observed.values()
        for value in values
        if value.const is None and not _is_moved(value, values)
    )


def _is_moved(value: Value, group: list[Value]) -> bool:
    """Whether a data mover made ``value`` from another one of the group, whose statistics cover it."""
    producer = value.graph.producer(value)
    if producer is None or not is_grid_preserving(producer):
        return False
    source = value.graph.op_inputs(producer)[0]
    return source is not None and source.original in group


def _leave_unseen(model: Model, context: PassContext, unseen: dict[Quantizer, list[Value]]) -> None:
    """Leaves in float what no sample reached, with a note."""
    if not unseen:
        return
    sites = [site for quantizer in unseen for site in model.quant.sites_of(quantizer)]
    leave_float(model, sites, "no calibration sample reached it")
    values = list(dict.fromkeys(chain(*unseen.values())))
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    context.notes.append(
        f"no calibration sample reached '{values[0].name}'{more}: there no grid is known and tensors stay "
        "float; calibrate on data that takes every branch and runs every loop"
    )


def _constant_range(value: Value) -> tuple[float, float]:
    assert value.const is not None
    array = finite_data(value.const)
    return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
