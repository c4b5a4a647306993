"""Checking a model by the rules of a target alone, as where its runtime is not on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qc.ir.facts.code_grids import grids_of_codes
from qc.ir.facts.op_traits import is_grid_preserving, reads_shape_only
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.passes.conformance import Violation, quantizes_weights_alone
from qc.passes.framework.target import Target
from qc.passes.lower.qdq.keep_barred import weighed_by_data
from qc.passes.quantize.placement.units import UnitMap
from qc.runtime.protos.wiring import Node

from ..coverage import reads_float_data
from .results import Check, CheckedOp

Cost = Callable[[Node], int | None]  # the multiplications of an op


def by_rules(
    ir: Model, target: Target, broken: Sequence[Violation], nodes: Sequence[Node], cost: Cost, where: str
) -> Check:
    costs = {out: cost(node) for node in nodes for out in node.proto.output[:1]}
    units = UnitMap(ir, target)
    reasons = {one.op: one for one in reversed(broken) if one.op is not None}
    ops = []
    for op in units.scopes.ops:
        reads = [(value, port) for port, value in enumerate(op.inputs) if value is not None]
        data = [held for value, port in reads if (held := ir.quant.of_use(value, op, port)) is not None]
        if not (reads_float_data(ir, op) or (data and not reads_shape_only(op))):
            continue
        made = next((value.name for value in op.outputs if value is not None), "")
        multiplied = costs.get(made)
        unit = units.unit_of(op)
        reason = next((reasons[one] for one in unit.ops if one in reasons), None)
        format = data[0].spec.format if data else ""
        barred = target.rule_for(op.op_type, op.domain).bars_data_weight(op, format)
        may = unit in units.integer and not barred
        if reason is not None:
            ops.append(
                CheckedOp(op.label, op.op_type, "breaks", "", "", reason.rule, reason.text, multiplied)
            )
        elif (may and data) or (units.is_carry(op) and is_grid_preserving(op)):
            ops.append(CheckedOp(op.label, op.op_type, "integer", multiplications=multiplied))
        else:
            infinite = next((one for one in op.outputs if one and units.is_infinite(one)), None)
            why_not = f"it has {format} data and a weight that is data" if barred else unit.rule.why
            rule, why = _left_float(target, may, why_not, infinite)
            ops.append(CheckedOp(op.label, op.op_type, "float", "", "", rule, why, multiplied))
    whole = tuple(as_text(one) for one in broken if one.op is None)
    return Check(target.name, False, where, tuple(ops), whole)


def _left_float(target: Target, could: bool, why: str | None, infinite: Value | None) -> tuple[str, str]:
    if infinite is not None:
        return (
            "infinity",
            f"its result '{infinite.name}' can hold an infinity of a constant, which no grid has",
        )
    if could:
        return "float input", "nothing that it reads is quantized"
    return "unsupported op", why or f"{target.name} does not run it in integers there"


def as_text(violation: Violation) -> tuple[str, str, str]:
    return (violation.op.label if violation.op is not None else "", violation.rule, violation.text)


def told(ir: Model, ops: Sequence[CheckedOp]) -> tuple[CheckedOp, ...]:
    """The ops, each that is float on purpose with that reason."""
    in_every_run = any(op.is_type("DynamicQuantizeLinear") for op in ir.ops())
    if in_every_run or not quantizes_weights_alone(ir):
        return tuple(ops)
    why = "weights alone are quantized in this model, and multiply float data"
    # By rules alone, without kernels, whatever breaks none counts as integer.
    told = (not op.kernel or op.rule in ("float input", "unsupported op") for op in ops)
    return tuple(
        replace(op, runs="float", rule="weights alone", why=why) if is_told else op
        for op, is_told in zip(ops, told, strict=True)
    )


def foreign_rounding(nodes: Sequence[Node], target: Target) -> list[Violation]:
    """The quantize ops of a domain that the target does not know."""
    found = []
    for node in nodes:
        if node.rounds and node.proto.domain not in ("", "ai.onnx", target.lowering.extension_domain):
            text = f"{node.label} is of the domain '{node.proto.domain}', which {target.name} does not know"
            found.append(Violation(None, "domain", text))
    return found


def data_weights(ir: Model, target: Target) -> list[Violation]:
    """The ops between codes of a QDQ graph that a target runs so only by weights that are constants."""
    found = []
    for op, _, format in weighed_by_data(ir, target):
        text = f"its weight is data; beside {format} data {target.name} takes a constant one alone"
        found.append(Violation(op, "data weight", text))
    return found


def shared_codes(ir: Model, target: Target) -> list[Violation]:
    """The constants of codes that are dequantized on several grids, where a device knows one."""
    if not target.lowering.one_grid:
        return []
    found, scopes = [], scopes_of(ir.graph)
    for value in (value for graph in ir.graphs() for value in graph.values() if value.const is not None):
        count = len(grids_of_codes(scopes, value))
        if count > 1:
            text = f"the codes '{value.name}' are read on {count} grids, and {target.name} takes one for all"
            mend = "its numbers are wrong; 'qc FILE --passes import-qdq,insert-qdq' gives each its own"
            found.append(Violation(None, "shared codes", f"{text}: {mend}"))
    return found
