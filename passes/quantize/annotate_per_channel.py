"""Gives weights one scale per output channel, or per block of input channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Le

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import WeightAxes, is_grid_preserving, weight_axes
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Granularity, PerBlock, PerChannel, Quantizer, QuantSpec, TwoLevelBlock
from qc.ir.quant_table import Site
from qc.ir.value_type import Shape

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext


@dataclass(frozen=True)
class AnnotatePerChannel(Pass):
    """Changes every integer weight quantizer from one scale per tensor to one per output channel.

    A weight that ops read along different axes keeps one scale per tensor; a table of rows has one scale for
    each row. With ``block_size``, weights of MatMul, Gemm and 1x1 convolutions, and tables, get a scale for
    each block of input channels instead, where the size divides them. With ``scale_bits`` as well, the scale
    of a block is an integer times a scale of its output channel (two-level blocks, AIMET's LPBQ). With
    ``shift_int2``, 2-bit weights have as many codes below as above zero.
    """

    name = "annotate-per-channel"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    block_size: Annotated[int, Ge(1)] | None = option(
        None, "input channels that share a scale in weights of MatMul, Gemm and 1x1 convolutions"
    )
    scale_bits: Annotated[int, Ge(1), Le(8)] | None = option(
        None, "bits of the integers that scales of blocks are, times a scale for each output channel"
    )

    shift_int2: bool = option(
        False, "give int2 weights the numbers -1.5, -0.5, 0.5 and 1.5 times the scale, without a zero"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_bits and self.shift_int2:
            raise UsageError(f"pass '{self.name}': shift_int2 is not for blocks with scale_bits; give one")
        if self.scale_bits and not self.block_size:
            raise UsageError(f"pass '{self.name}': scale_bits are those of blocks; give block_size too")

    def run(self, model: Model, context: PassContext) -> None:
        target, scopes = context.required_target(), scopes_of(model.graph)
        for quantizer in model.quant.quantizers():
            if not isinstance(quantizer.spec.format, IntFormat) or quantizer.spec.derived:
                continue
            readings = list(_readings(model.quant.sites_of(quantizer), scopes))
            found = [_weight_axes(model, quantizer, *reading) for reading in readings]
            axes = [one for one in found if one is not None]
            if not axes or len(axes) < len(readings):
                continue
            rules = [target.rule_for(use.op.op_type, use.op.domain) for use, _ in readings]
            granularities = {
                self._granularity(use.op, weight, along)
                for (use, weight), along in zip(readings, axes, strict=True)
            }
            chosen = granularities.pop() if len(granularities) == 1 else None
            if chosen is None or not all(rule.per_channel for rule in rules):
                continue
            by_option = isinstance(chosen, PerBlock)
            asked_by = f"option block_size of '{self.name}'" if by_option else rules[0].asked_by
            spec = self._shifted(quantizer.spec.with_granularity(chosen))
            model.quant.respec(quantizer, spec, f"weight of {readings[0][0].op.label}", asked_by)

    def _shifted(self, spec: QuantSpec) -> QuantSpec:
        if self.shift_int2 and spec.format == IntFormat(2, signed=True) and spec.symmetric:
            return replace(spec, narrow=False, shifted=True)
        return spec

    def _granularity(self, op: Op, weight: Value, axes: WeightAxes) -> Granularity | None:
        shape = weight.type.shape or ()
        axis, block_axis = axes
        if self.block_size and block_axis is not None and _is_matrix(op, shape):
            length = shape[block_axis]
            if isinstance(length, int) and length and length % self.block_size == 0:
                return self._blocks(block_axis, axis, self.block_size)
        return PerChannel(axis) if axis is not None and len(shape) > axis else None

    def _blocks(self, axis: int, channel: int | None, size: int) -> PerBlock:
        """Blocks along an axis; a stack of matrices has no one axis of channels for a second level."""
        if self.scale_bits:
            two_level = TwoLevelBlock(axis, size, self.scale_bits)
            if two_level.channel_axis == channel:
                return two_level
        return PerBlock(axis, size)


def _readings(sites: Iterable[Site], scopes: Scopes) -> Iterator[tuple[Use, Value]]:
    """What reads the tensors at some sites, with these by their originals."""
    for site in sites:
        if site.op is not None and site.port is not None:
            yield Use(site.op, site.port), site.value.original
        else:
            yield from ((use, site.value.original) for use in scopes.uses(site.value))


def _weight_axes(model: Model, quantizer: Quantizer, use: Use, value: Value) -> WeightAxes | None:
    """The axes of a constant as a weight; None also for a matrix that is moved on a grid of the whole."""
    (result, *_) = use.op.outputs
    grids = model.quant.quantizers_on(result) if result is not None and is_grid_preserving(use.op) else ()
    is_moved = any(grid.spec == quantizer.spec for grid in grids)
    return None if value.const is None or is_moved else weight_axes(use, value)


def _is_matrix(op: Op, shape: Shape) -> bool:
    """Whether a weight is a matrix or a stack of them; that of a convolution is if its kernel is 1x1."""
    return not op.is_type("Conv") or all(length == 1 for length in shape[2:])
