"""What all passes that calibrate have in common: what a quantizer covers, and where that is seen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import numpy as np

from qc.ir.errors import listed
from qc.ir.executor import Executor, Observation, Statistics
from qc.ir.facts.dataflow import makes_masks, mask_parts
from qc.ir.facts.op_traits import is_grid_preserving, is_trained
from qc.ir.facts.result_range import hull, result_range
from qc.ir.facts.scopes import name_apart, scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.ranges import GridOf
from qc.ir.quant.spec import Encoding, PerChannel, PerTensor, Quantizer, QuantizerState, QuantSpec
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ...framework.base import Pass, Stage
from ...framework.context import PassContext
from ...framework.target import Target
from ..placement.parameters import round_parameters
from .bias import leave_float
from .covered import Covered, CoveredRanges, Range
from .exponents import exponents
from .masks import lowest_with_mask, masked_below
from .pairs import integer_uses, within_pairs
from .ranges import with_fixed_ends
from .spread import is_all_zero, too_few

# Below this part of the range of a function, two bits of the codes would never be used.
_PART = 0.25
# Below this one, one code of 8 bits, the data tells little of the function, as where it was 0 throughout.
_TELLING_PART = 1 / 256
# Finds the range that a grid of a spec is to cover; is told whether it should be all that was seen.
RangeOf = Callable[[Statistics, QuantSpec, bool], Range]
# The grid that a quantizer has while tensors are observed, for trained parameters.
EncodingOf = Callable[[Quantizer, Value], Encoding | None]


class CalibrationPass(Pass):
    """A pass that calibrates: it has an arithmetic that turns numbers into grids."""

    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})
    uses = frozenset({"data"})  # for all but constants

    @property
    def is_sequential(self) -> bool:
        """Whether it looks at the tensors of one feed after the other, and not at their statistics."""
        return False

    @abstractmethod
    def of_range(self, spec: QuantSpec, low: float, high: float) -> Encoding:
        """The grid that covers a range, but for an end that the spec fixes."""

    @abstractmethod
    def of_constant(self, spec: QuantSpec, value: Value, executor: Executor) -> Encoding:
        """The grid of the numbers of a constant."""


class Calibration:
    """One calibration of a model. Open quantizers that need no data get their numbers at once.

    Attributes:
        grids: the arithmetic.
        observed: the open quantizers whose numbers are in the data, with their tensors by the originals.
        parts: what becomes a part of scores that only Softmax sees, and of nothing else.
    """

    def __init__(
        self,
        model: Model,
        context: PassContext,
        grids: CalibrationPass,
        how: str,
        target: Target | None = None,
    ) -> None:
        """Calibrates the constants.

        Args:
            how: how the grid of a constant is found, for the journal.
            target: the device whose demands grids have to meet; None if they have to meet none.
        """
        self.model = model
        self.context = context
        self.target = target
        self.observed: dict[Quantizer, list[Value]] = {}
        self.parts = mask_parts(model.graph)
        self.grids = grids
        executor = context.required_executor()
        for quantizer in model.quant.quantizers():
            spec = quantizer.spec
            if quantizer.state is not QuantizerState.OPEN or spec.derived:
                continue
            values = list(dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer)))
            if not isinstance(spec.format, IntFormat) and not spec.format.scaled:
                self.set(
                    quantizer, partial(grids.of_range, low=0.0, high=0.0), "a format that needs no scale"
                )
            elif self._leaves_room(quantizer, values):
                self.observed[quantizer] = values
            elif _is_fixed(spec) and (spec.granularity == PerTensor() or values[0].const is None):
                self._set_fixed(quantizer)
            elif len(values) == 1 and values[0].const is not None and not self._masks(values[0]):
                grid_of: GridOf = partial(grids.of_constant, value=values[0], executor=executor)
                if target is not None and target.grids.scale_span:
                    grid_of = partial(_within_span, grid_of, target.grids.scale_span)
                if target is not None and target.grids.most_pair_sum:
                    uses, most = integer_uses(model, quantizer), target.grids.most_pair_sum
                    grid_of = partial(within_pairs, grid_of, uses, most)
                if spec.granularity == PerTensor() and not is_trained(values[0]):
                    grid_of = partial(self._wide_enough, grid_of, values[0].const)
                self.set(quantizer, grid_of, f"from the constant, {how}")
            else:
                self.observed[quantizer] = values

    def calibrate_observed(
        self, method: str, range_of: RangeOf, statistics: Mapping[Value, Statistics]
    ) -> None:
        """Gives the observed quantizers their numbers, from the statistics of their tensors."""
        scopes, coverage = scopes_of(self.model.graph), CoveredRanges(self.model, statistics)
        raised = exponents(self.model.graph)
        saturated: list[Value] = []
        unseen: list[Quantizer] = []
        for quantizer, values in self.observed.items():
            covered = coverage.of(values)
            if _is_fixed(quantizer.spec):
                if not _takes_part(covered, quantizer.spec):
                    self._set_fixed(quantizer)
                    continue
                spec = replace(quantizer.spec, fixed_range=None)
                self.model.quant.respec(quantizer, spec, "a small part of the range of the function")
            if not covered:
                unseen.append(quantizer)
                continue
            exposed = any(map(scopes.is_exposed, values))
            keeps_top = not raised.isdisjoint(values)
            ends = cache(partial(self._ends, values, covered, (exposed, exposed or keeps_top), range_of))
            low, high = ends(quantizer.spec)
            lowest = _lowest(covered, low, quantizer.spec)
            reason = "{} gave [{:.6g}, {:.6g}]".format(method, *with_fixed_ends(quantizer.spec, lowest, high))
            if covered.mask is not None:
                saturated.append(values[0])
                reason += f"; scores begin at {low:.6g}: {lowest:.6g} masks as well as {covered.mask:.6g}"
            self.set(quantizer, partial(self._covering, covered, ends), reason)
        self._note_masks(saturated)
        inputs = [value for value in self.model.graph.inputs if value.is_float]
        self.context.little_data = too_few(statistics, inputs)
        if is_all_zero(statistics, inputs):
            self.context.warnings.append(
                "all calibration data is zero, which tells nothing of the ranges of other data"
            )
        self.leave_unseen(unseen)

    def _leaves_room(self, quantizer: Quantizer, values: Sequence[Value]) -> bool:
        """Whether results may take a small part of the range that the target has for their function."""
        if self.target is None:
            return False
        makers = [op for value in values if (op := value.producer) is not None]
        rules = (self.target.rule_for(op.op_type, op.domain) for op in makers)
        return any(rule.leaves_room(quantizer.spec) for rule in rules)

    def _set_fixed(self, quantizer: Quantizer) -> None:
        self.set(quantizer, partial(self.grids.of_range, low=0.0, high=0.0), "fixed range")

    def _ends(
        self,
        values: Sequence[Value],
        covered: Covered,
        kept: tuple[bool, bool],
        range_of: RangeOf,
        spec: QuantSpec,
    ) -> Range:
        """The range that a grid of a spec has to cover: what was seen, and constants on the same grid.

        It is at least as wide as the device needs it, which else computes wrong numbers. An end that is
        kept is as far as was seen.
        """
        seen = []
        if covered.seen is not None:
            found = {whole: range_of(covered.seen, spec, whole) for whole in dict.fromkeys(kept)}
            low, high = (found[whole][end] for end, whole in enumerate(kept))
            seen = [_possible(values, covered.seen, (low, high))]
        lows, highs = zip(*covered.constants, *seen, strict=True)
        low, high = min(lows), max(highs)
        least = self._least_range(is_zero=low == high == 0)
        least = min(low, 0.0) + max([least, *(self._least_range_of(value, spec) for value in values)])
        return low, least if max(high, 0.0) < least else high

    def _least_range(self, is_zero: bool) -> float:
        if self.target is None:
            return 0.0
        return self.target.grids.zero_range if is_zero else self.target.grids.minimum_range

    def _least_range_of(self, value: Value, spec: QuantSpec) -> float:
        """That of what an op makes, as the target has it."""
        op = value.producer
        if op is None or self.target is None:
            return 0.0
        return self.target.rule_for(op.op_type, op.domain).least_ranges.get(str(spec.format), 0.0)

    def _wide_enough(self, grid_of: GridOf, constant: TensorRef, spec: QuantSpec) -> Encoding:
        """The grid of a constant that data is computed with, if it is not too narrow for the device."""
        found = grid_of(spec)
        least = self._least_range(is_zero=constant.extremes() == (0, 0))
        low = float(found.minimum)
        return found if float(found.maximum) - low >= least else self.grids.of_range(spec, low, low + least)

    def _masks(self, constant: Value) -> bool:
        """Whether a constant holds masks beside other numbers, whose range is not its own."""
        uses = constant.uses
        is_mask = bool(uses) and all(makes_masks(use, self.parts) for use in uses)
        return is_mask and constant.const is not None and masked_below(constant.const.numpy()) is not None

    def _covering(self, covered: Covered, ends: Callable[[QuantSpec], Range], spec: QuantSpec) -> Encoding:
        low, high = ends(spec)
        return self.grids.of_range(spec, _lowest(covered, low, spec), high)

    def set(self, quantizer: Quantizer, grid_of: GridOf, reason: str) -> None:
        """Gives a quantizer the grid of its spec, and keeps how that of another spec would be found."""
        self.model.quant.calibrate(quantizer, grid_of(quantizer.spec), reason)
        self.context.grids[quantizer.id] = grid_of

    @property
    def tensors(self) -> dict[Value, None]:
        """The tensors whose numbers are needed, once each."""
        return dict.fromkeys(
            value
            for values in self.observed.values()
            for value in values
            if value.const is None and not _is_moved(value, values)
        )

    @contextmanager
    def running(self, rounded: EncodingOf | None) -> Iterator[None]:
        """A block in which the model is as it runs: with distinct names, and rounded where that is asked."""
        rewriter = Rewriter(self.model)
        with rewriter.trial():
            name_apart(rewriter)
            if rounded is not None:
                round_parameters(rewriter, rounded)
            yield

    def observe(self, user: str, has_histogram: bool, rounded: EncodingOf | None) -> dict[Value, Statistics]:
        """Statistics of every tensor that some quantizer has to cover, from one pass over the data.

        Args:
            user: the pass, as messages name it.
            has_histogram: whether ranges are found in histograms.
            rounded: the grids of trained parameters while the model runs; None if they are not rounded.
        """
        wanted = self.tensors
        # All alike, since the statistics of tied tensors are merged.
        has_histogram = has_histogram or not self.parts.isdisjoint(wanted)
        observation = Observation("histogram" if has_histogram else "range")
        data = self.context.required_data(user)
        total = self.context.samples_given
        with self.running(rounded), self.context.task("calibrating", total) as task:
            sources = {value.name: value for value in wanted}
            found = self.context.required_executor().observe(
                lower(self.model),
                dict.fromkeys(sources, (observation,)),
                data,
                base_dir=self.model.base_dir,
                on_feeds=task.advance,
            )
        return {sources[name]: statistics for (name, _), statistics in found.items()}

    def leave_unseen(self, unseen: list[Quantizer]) -> None:
        """Leaves in float what no sample reached, with a note."""
        if not unseen:
            return
        sites = [site for quantizer in unseen for site in self.model.quant.sites_of(quantizer)]
        leave_float(self.model, sites, "no calibration sample reached it")
        values = list(dict.fromkeys(chain(*(self.observed[quantizer] for quantizer in unseen))))
        self.context.notes.append(
            f"no calibration sample reached {_named(values)}: there no grid is known and tensors stay "
            "float; calibrate on data that is not empty, takes every branch and runs every loop"
        )

    def _note_masks(self, values: list[Value]) -> None:
        """Tells that the numbers of masks were left out of ranges."""
        if values:
            self.context.notes.append(
                f"a mask reaches far below the scores in {_named(values)}; as only Softmax sees them, "
                "the grid covers the scores, and masked numbers saturate a little below"
            )


def _within_span(grid_of: GridOf, span: float, spec: QuantSpec) -> Encoding:
    """The grid of a weight with its least scales raised, which rounds away little beside the others."""
    found = grid_of(spec)
    if not isinstance(found.spec.granularity, PerChannel) or np.any(found.zero_point):
        return found
    return replace(found, scale=np.maximum(found.scale, found.scale.max() / span).astype(found.scale.dtype))


def _lowest(covered: Covered, low: float, spec: QuantSpec) -> float:
    """Where a range begins whose least number that is not masked is ``low``."""
    return low if covered.mask is None else lowest_with_mask(low, spec, covered.room)


def _possible(values: Sequence[Value], seen: Statistics, found: Range) -> Range:
    """A range without what no data can reach, as below a Relu or above a Softmax."""
    low, high = hull([result_range(value) for value in values if value.const is None])
    least, largest = min(low, float(seen.minimum)), max(high, float(seen.maximum))
    return max(found[0], least), min(found[1], largest)


def _is_fixed(spec: QuantSpec) -> bool:
    return spec.fixed_range is not None and bool(np.isfinite(spec.fixed_range).all())


def _takes_part(covered: Covered, spec: QuantSpec) -> bool:
    """Whether what was seen takes under a quarter of the range that a spec fixes, but not next to none."""
    seen, fixed = covered.seen, spec.fixed_range
    if seen is None or not seen.count or fixed is None:
        return False
    whole = max(map(abs, fixed))
    part = max(abs(float(seen.minimum)), abs(float(seen.maximum)))
    return _TELLING_PART * whole <= part < _PART * whole


def _named(values: list[Value]) -> str:
    return listed([f"'{value.name}'" for value in values], 1)


def _is_moved(value: Value, group: list[Value]) -> bool:
    """Whether a data mover made ``value`` from another one of the group, whose statistics cover it."""
    producer = value.producer
    if producer is None or not is_grid_preserving(producer):
        return False
    source = producer.inputs[0]
    return source is not None and source.original in group
