"""Lets tensors that must have one grid hold one quantizer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.op_traits import GRID_JOINING
from qc.ir.quant import Quantizer
from qc.ir.quant_table import Site

from ..base import Pass, Stage
from ..context import PassContext
from .units import UnitMap


@dataclass(frozen=True)
class TieQuantizers(Pass):
    """Ties the output of a data mover to its input, and the inputs of a join to its output.

    An op that only moves data (Reshape, MaxPool, Slice) gives its output the grid of its input. For an op
    that joins tensors (Concat) on a target that wants one grid there, every input takes the quantizer of
    the output. An input that somebody else reads too keeps its own grid for that reader and is requantized
    on its way into the join. Nothing is looked for beyond the op that made an input: a tensor that nothing
    quantized stays so, and so does a frozen quantizer.
    """

    name = "tie-quantizers"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        units = UnitMap(model, model.graph, target)
        for op in model.graph.ops():
            if units.is_carry(op):
                _tie_moved(model, op)
        joins = [
            op
            for op in model.graph.ops()
            if units.unit_of(op).rule.share_grid and op.op_type in GRID_JOINING and units.runs_integer(op)
        ]
        for op in joins:
            _inherit_range(model, op)
        for op in reversed(joins):
            _tie_joined(model, op)


def _tie_moved(model: Model, op: Op) -> None:
    source = model.graph.op_inputs(op)[0]
    quantizer = model.quant.of_value(source) if source is not None else None
    if quantizer is None:
        return
    for value in model.graph.op_outputs(op):
        other = model.quant.of_value(value) if value is not None else None
        if other is None or other.frozen or quantizer.frozen:
            continue
        if other.spec.format == quantizer.spec.format:
            model.quant.tie(quantizer, [other], f"{op.label} moves data and keeps its grid")


def _inherit_range(model: Model, op: Op) -> None:
    """Fixes the range of a join's result if all its inputs are fixed to the same one."""
    output = model.graph.op_outputs(op)[0]
    shared = model.quant.of_value(output) if output is not None else None
    inputs = [(port, v) for port, v in enumerate(model.graph.op_inputs(op)) if v is not None and v.is_float]
    held = [model.quant.of_use(value, op, port) for port, value in inputs]
    ranges = {quantizer.spec.fixed_range if quantizer is not None else None for quantizer in held}
    if shared is not None and len(ranges) == 1 and None not in ranges:
        spec = replace(shared.spec, fixed_range=ranges.pop())
        model.quant.respec(shared, spec, f"{op.label} joins tensors of that range")


def _tie_joined(model: Model, op: Op) -> None:
    graph, quant = model.graph, model.quant
    output = graph.op_outputs(op)[0]
    shared = quant.of_value(output) if output is not None else None
    if shared is None:
        return
    reason = f"{op.label} joins tensors of one grid"
    for port, value in enumerate(graph.op_inputs(op)):
        if value is None or not value.is_float:
            continue
        own = quant.of_use(value, op, port)
        if own is None or own is shared:
            continue
        frozen = own.frozen or shared.frozen
        if not frozen and _only_flows_into(graph, model, own, op):
            if own.spec.fixed_range is not None or shared.spec.fixed_range is not None:
                quant.respec(shared, replace(shared.spec, fixed_range=_common_range(own, shared)), reason)
            quant.tie(shared, [own], reason)
        elif not (own.frozen and quant.get(Site(value, op, port)) is own):
            _requantize(model, value, op, port, shared, reason)


def _common_range(a: Quantizer, b: Quantizer) -> tuple[float, float] | None:
    """The range that two quantizers have in common: only if both are fixed to the same one."""
    return a.spec.fixed_range if a.spec.fixed_range == b.spec.fixed_range else None


def _only_flows_into(graph: Graph, model: Model, quantizer: Quantizer, op: Op) -> bool:
    """Whether no one but ``op`` sees the grid of ``quantizer``: changing it changes nothing else."""
    sites = model.quant.sites_of(quantizer)
    held = {site.value for site in sites}
    return all(site.op is None or site.op is op for site in sites) and all(
        _is_private(graph, value, held, op) for value in held
    )


def _is_private(graph: Graph, value: Value, held: set[Value], op: Op) -> bool:
    if graph.is_output(value) or value.const is not None:
        return value.const is not None
    moved = (use.op for use in graph.uses(value) if use.op is not op)
    return all(all(out in held for out in graph.op_outputs(mover) if out is not None) for mover in moved)


def _requantize(model: Model, value: Value, op: Op, port: int, shared: Quantizer, reason: str) -> None:
    site = Site(value, op, port)
    if model.quant.get(site) is not None:
        model.quant.remove(site, reason)
    model.quant.place(site, shared, f"{reason}; other readers of it keep theirs")
