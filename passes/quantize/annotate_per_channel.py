"""Gives weights one scale per output channel, or per block of input channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from qc.ir.formats import IntFormat
from qc.ir.model import Model
from qc.ir.op_traits import channel_axis, input_channel_axis, weight_port
from qc.ir.quant import Granularity, PerBlock, PerChannel
from qc.ir.quant_table import Site

from ..base import Pass, Stage, option
from ..context import PassContext


@dataclass(frozen=True)
class AnnotatePerChannel(Pass):
    """Changes every integer weight quantizer from one scale per tensor to one per output channel.

    A weight that ops read along different axes keeps one scale per tensor. With ``block_size``, weights of
    MatMul and Gemm get a scale for each block of input channels instead, where the size divides them.
    """

    name = "annotate-per-channel"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    block_size: Annotated[int, Ge(1)] | None = option(
        None, "input channels that share a scale in MatMul and Gemm weights"
    )

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        for quantizer in model.quant.quantizers():
            sites = model.quant.sites_of(quantizer)
            if not isinstance(quantizer.spec.format, IntFormat) or quantizer.spec.derived:
                continue
            readers = [site for site in sites if site.op is not None and site.port == weight_port(site.op)]
            if len(readers) != len(sites) or any(site.value.original.const is None for site in sites):
                continue
            ops = [site.op for site in sites if site.op is not None]
            rules = [target.rule_for(op.op_type, op.domain) for op in ops]
            granularities = {self._granularity(site) for site in sites}
            chosen = granularities.pop() if len(granularities) == 1 else None
            if chosen is None or not all(rule.per_channel for rule in rules):
                continue
            by_option = isinstance(chosen, PerBlock)
            asked_by = f"option block_size of '{self.name}'" if by_option else rules[0].asked_by
            spec = quantizer.spec.with_granularity(chosen)
            model.quant.respec(quantizer, spec, f"weight of {ops[0].label}", asked_by)

    def _granularity(self, site: Site) -> Granularity | None:
        assert site.op is not None
        weight = site.value.original
        shape = weight.type.shape or ()
        block_axis = input_channel_axis(site.op, weight)
        if self.block_size and block_axis is not None and site.op.is_type("MatMul", "Gemm"):
            length = shape[block_axis]
            if isinstance(length, int) and length and length % self.block_size == 0:
                return PerBlock(block_axis, self.block_size)
        axis = channel_axis(site.op, weight)
        return PerChannel(axis) if axis is not None and len(shape) > axis else None
