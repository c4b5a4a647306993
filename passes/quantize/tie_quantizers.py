"""Lets tensors that must have one grid hold one quantizer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qc.ir.facts.dataflow import huge_values
from qc.ir.facts.op_traits import is_grid_preserving, joins_grids, stays_within
from qc.ir.facts.scopes import RegionBranchEdge, Scopes
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .placement.units import UnitMap


@dataclass(frozen=True)
class TieQuantizers(Pass):
    """Ties the output of a data mover to its input, and the inputs of a join to its output.

    An op that only moves data (Reshape, MaxPool, Slice) gives its output the grid of its input, and so does a
    Resize that interpolates linearly where the target wants one grid there. What passes into or out of the
    bodies of If, Loop and Scan at one place has one grid: the result of an If and what its branches give
    back, or what a Loop carries from one iteration to the next. A tensor from outside joins it unless
    somebody else reads it too.

    For an op that joins tensors (Concat) on a target that wants one grid there, every input takes the
    quantizer of the output. An input that somebody else reads too keeps its own grid for that reader and is
    requantized on its way into the join. Nothing is looked for beyond the op that made an input: a tensor
    that nothing quantized stays so, and so does a quantizer that is frozen or has chosen codes. Where a
    device makes what is joined on the grid of the result (``wraps``), joins that are joined once more have
    the grid of the last one.

    A constant that data is compared with (Equal) has the grid of the data: on one of its own, numbers that
    are equal in float, such as a label of -1, would round to different ones.
    """

    name = "tie-quantizers"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        units = UnitMap(model, target)
        for op in units.scopes.ops:
            if units.is_carry(op):
                _tie_moved(model, op, f"{op.label} moves data and keeps its grid")
            elif stays_within(op) and units.unit_of(op).rule.share_grid:
                _tie_moved(model, op, f"{op.label} makes nothing beyond its data and keeps its grid")
        for edges in units.scopes.branch_edges.values():
            for edge in edges:
                _tie_edge(model, units.scopes, edge)
        joins = [op for op in units.scopes.ops if joins_grids(op) and units.runs_integer(op)]
        rules = {op: units.unit_of(op).rule for op in joins}
        for op in joins:
            if rules[op].share_grid:
                _inherit_range(model, op, rules[op].asked_by)
        for op in reversed(joins):
            if rules[op].share_grid:
                _tie_joined(model, op, rules[op].asked_by)
            elif rules[op].wraps:
                _tie_nested_joins(model, op, rules[op].asked_by)
        for op in units.scopes.ops:
            if op.op_type == "Equal" and units.runs_integer(op):
                _tie_compared(model, op)


def _tie_compared(model: Model, op: Op) -> None:
    """Gives a constant the grid of the data that it is compared with."""
    inputs = [value for value in op.inputs if value is not None]
    constant = [port for port, value in enumerate(inputs) if value.original.const is not None]
    if len(inputs) != 2 or len(constant) != 1:
        return
    (port,), quant = constant, model.quant
    own = quant.of_use(inputs[port], op, port)
    data = quant.of_use(inputs[1 - port], op, 1 - port)
    if own is None or data is None or own is data or own.is_fixed or data.is_fixed:
        return
    if inputs[port].original in huge_values(model.graph):  # which would leave the data no steps
        return
    reason = f"{op.label} finds numbers equal on one grid alone"
    _requantize(model, Site(inputs[port], op, port), data, reason, "")


def _tie_moved(model: Model, op: Op, reason: str) -> None:
    source = op.inputs[0]
    quantizer = model.quant.of_use(source, op, 0) if source is not None else None
    if quantizer is None:
        return
    for value in op.outputs:
        other = model.quant.of_value(value) if value is not None else None
        if other is None or other.is_fixed or quantizer.is_fixed:
            continue
        # A table whose rows have scales of their own is looked up in floats, on no grid that could be kept.
        if (other.spec.format, other.spec.granularity) == (quantizer.spec.format, quantizer.spec.granularity):
            model.quant.tie(quantizer, [other], reason)


def _tie_edge(model: Model, scopes: Scopes, edge: RegionBranchEdge) -> None:
    """Gives everything that passes into or out of a body at one place a single quantizer."""
    quant = model.quant
    arrived = [alias for result in edge.results for alias in scopes.aliases(result)]
    sites = [site for alias in arrived for site in quant.sites_on(alias)]
    results = [quantizer for site in sites if (quantizer := quant.get(site)) is not None]
    if not results:
        return
    sources = {source: quant.of_value(source) for source in edge.sources}
    ranges = {quantizer.spec.fixed_range if quantizer is not None else None for quantizer in sources.values()}
    tied = [q for source, q in sources.items() if q is not None and _follows(model, scopes, edge, source)]
    tied = [quantizer for quantizer in (*tied, *results) if not quantizer.is_fixed]
    keep = next(iter(tied), None)
    if keep is None:
        return
    reason = f"{edge.op.label} passes it on, on one grid"
    quant.respec(keep, replace(keep.spec, fixed_range=ranges.pop() if len(ranges) == 1 else None), reason)
    kind = keep.spec.format, keep.spec.granularity
    quant.tie(keep, [other for other in tied if (other.spec.format, other.spec.granularity) == kind], reason)


def _follows(model: Model, scopes: Scopes, edge: RegionBranchEdge, source: Value) -> bool:
    """Whether a source may have the grid of the edge: its body makes it, or nothing else reads it."""
    if source in edge.yielded and source.graph.parent is edge.op:
        return True
    quantizer = model.quant.of_value(source)
    sites = model.quant.sites_of(quantizer) if quantizer is not None else []
    alone = all(site.value.original is source for site in sites)
    onward = all(result in edge.results for result in scopes.onward(source))
    return alone and onward and not scopes.leaves(source) and next(scopes.uses(source), None) is None


def _inherit_range(model: Model, op: Op, asked_by: str) -> None:
    """Fixes the range of a join's result if all its inputs are fixed to the same one."""
    output = op.outputs[0]
    shared = model.quant.of_value(output) if output is not None else None
    inputs = [(port, v) for port, v in enumerate(op.inputs) if v is not None and v.is_float]
    held = [model.quant.of_use(value, op, port) for port, value in inputs]
    ranges = {quantizer.spec.fixed_range if quantizer is not None else None for quantizer in held}
    if shared is not None and len(ranges) == 1 and None not in ranges:
        spec = replace(shared.spec, fixed_range=ranges.pop())
        model.quant.respec(shared, spec, f"{op.label} joins tensors of that range", asked_by)


def _tie_joined(model: Model, op: Op, asked_by: str) -> None:
    quant = model.quant
    output = op.outputs[0]
    shared = quant.of_value(output) if output is not None else None
    if shared is None:
        return
    reason = f"{op.label} joins tensors of one grid"
    for port, value in enumerate(op.inputs):
        if value is None or not value.is_float:
            continue
        own = quant.of_use(value, op, port)
        if own is None or own is shared:
            continue
        frozen = own.is_fixed or shared.is_fixed
        if not frozen and _only_flows_into(model, own, op):
            if own.spec.fixed_range is not None or shared.spec.fixed_range is not None:
                quant.respec(
                    shared, replace(shared.spec, fixed_range=_common_range(own, shared)), reason, asked_by
                )
            quant.tie(shared, [own], reason, asked_by)
        elif not (own.is_fixed and quant.get(Site(value, op, port)) is own):
            _requantize(model, Site(value, op, port), shared, reason, asked_by)


def _tie_nested_joins(model: Model, op: Op, asked_by: str) -> None:
    """Gives what is joined once more, and not read otherwise, the grid of the last join at once."""
    quant, output = model.quant, op.outputs[0]
    shared = quant.of_value(output) if output is not None else None
    for port, value in enumerate(op.inputs):
        own = quant.of_use(value, op, port) if value is not None else None
        if own is None or shared is None or own is shared or own.spec != shared.spec or shared.is_fixed:
            continue
        makers = (site.value.producer for site in quant.sites_of(own))
        is_join = any(maker is not None and joins_grids(maker) for maker in makers)
        if is_join and not own.is_fixed and _only_flows_into(model, own, op):
            quant.tie(shared, [own], f"{op.label} joins it once more", asked_by)


def _common_range(a: Quantizer, b: Quantizer) -> tuple[float, float] | None:
    """The range that two quantizers have in common: only if both are fixed to the same one."""
    return a.spec.fixed_range if a.spec.fixed_range == b.spec.fixed_range else None


def _only_flows_into(model: Model, quantizer: Quantizer, op: Op) -> bool:
    """Whether no one but ``op`` sees the grid of ``quantizer``: changing it changes nothing else."""
    sites = model.quant.sites_of(quantizer)
    held = {site.value for site in sites}
    return all(site.op is None or site.op is op for site in sites) and all(
        _is_private(value, held, op) for value in held
    )


def _is_private(value: Value, held: set[Value], op: Op) -> bool:
    if value.is_output or value.original.const is not None:
        return value.original.const is not None
    # One after the other and in no order: of thousands that read it, mostly the first tells.
    readers = map(value.graph.payload, value.graph.nx.sinks(value.id))
    moved = (reader for reader in readers if isinstance(reader, Op) and reader is not op)
    return all(all(out in held for out in mover.outputs if out is not None) for mover in moved)


def _before_move(model: Model, site: Site) -> Site | None:
    """Where an op that only moves data for a single reader reads it; None if none such makes what is read."""
    value = site.value
    mover = value.producer
    if mover is None or not is_grid_preserving(mover) or not value.is_read_once:
        return None
    held, source = model.quant.get(Site(value)), mover.inputs[0]
    if held is None or held.is_fixed or source is None or mover.num_outputs > 1:
        return None
    return Site(source, mover, 0) if model.quant.of_use(source, mover, 0) is held else None


def _requantize(model: Model, site: Site, shared: Quantizer, reason: str, asked_by: str) -> None:
    """Brings what is read to a grid, before it is moved for that reader alone.

    The HTP computes wrong numbers where a Reshape stands in front of that.
    """
    while (before := _before_move(model, site)) is not None:
        model.quant.remove(Site(site.value), reason, asked_by)
        model.quant.place(Site(site.value), shared, reason, asked_by)
        site = before
    if model.quant.get(site) is not None:
        model.quant.remove(site, reason, asked_by)
    model.quant.place(site, shared, f"{reason}; other readers of it keep theirs", asked_by)
