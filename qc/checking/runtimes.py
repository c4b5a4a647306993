"""What the runtime of a target makes of the ops of a model, in the words of a check."""

from __future__ import annotations

import platform
from collections.abc import Container, Mapping, Sequence

from qc.ir.base.extras import install_command
from qc.ir.facts.op_table import traits_of
from qc.ir.facts.products import is_product
from qc.passes.framework.target import Target
from qc.runtime.devices.device import Device
from qc.runtime.devices.known import device_for, version_of
from qc.runtime.devices.onnx_runtime import OrtCpu
from qc.runtime.execution.executed import ExecutedOp, Execution
from qc.runtime.execution.integer_kernels import misread, why_float
from qc.runtime.protos.wiring import Node

from .results import CheckedOp, Runs
from .rules import Cost

_REMOVED: tuple[Runs, str, str] = ("removed", "", "")


def device_here(target: Target) -> type[Device] | None:
    """The runtime of a target on this kind of machine; None if there is none, or it is not installed."""
    fits = not target.machines or platform.machine() in target.machines
    device = device_for(target.provider) if fits else None
    return device if device is not None and version_of(device) is not None else None


def runs_here(target: Target) -> bool:
    """Whether ONNX Runtime on this processor is what a target is about."""
    return device_here(target) is OrtCpu


def not_asked(device: type[Device] | None, target: Target) -> str:
    """Why the runtime of a target was not asked, behind its name."""
    known = device_for(target.provider)
    if device is not None:
        return "which takes no free dimensions (fix them when compiling, --fix-shape NAME=1)"
    if known is not None and version_of(known) is None:
        return f"whose runtime is not installed ({install_command(known.extra)})"
    return "which is not on this machine"


def ops_in_onnx_runtime(execution: Execution, counted: Container[str], cost: Cost) -> list[CheckedOp]:
    """The ops as ONNX Runtime runs them; ``counted`` are the labels of those that compute on float data."""
    return [_checked(op, cost, *_verdict(op)) for op in execution.ops if _counts(op, counted)]


def ops_on_device(
    execution: Execution, ruled: Mapping[str, CheckedOp], cost: Cost, device: str, runs_all: bool
) -> list[CheckedOp]:
    """The ops as another runtime runs them.

    Args:
        ruled: those that count, as rules see them, by label.
        runs_all: it takes whole models, so that an op of other data that it refuses counts, too.
    """
    # Of weights alone that is the reason of every op.
    alone = next((op for op in ruled.values() if op.rule == "weights alone"), None)
    told = (
        (op, ruled.get(op.node.label, alone))
        for op in execution.ops
        if _counts(op, ruled) or (runs_all and op.integer is False and op.place)
    )
    return [_checked(op, cost, *_foreign_verdict(op, rule, device)) for op, rule in told]


def _counts(op: ExecutedOp, counted: Container[str]) -> bool:
    """Whether the op computes on floats or codes: what reads only shapes does not."""
    if traits_of(op.node.op_type).reads_shape:
        return False
    reads_codes = op.node.reads_grid() or multiplies(op.node) or bool(op.integer)
    return reads_codes or op.node.label in counted


def multiplies(node: Node) -> bool:
    """Whether the op sums products."""
    return is_product(node.op_type, node.proto.domain)


def _checked(op: ExecutedOp, cost: Cost, runs: Runs, rule: str, why: str) -> CheckedOp:
    label, op_type = op.node.label, op.node.op_type
    return CheckedOp(label, op_type, runs, op.kernel, op.runs_as, rule, why, cost(op.node), op.seconds)


def _verdict(op: ExecutedOp) -> tuple[Runs, str, str]:
    if op.integer:
        wrong = misread(op.node)
        return ("wrong", *wrong) if wrong is not None else ("integer", "", "")
    if op.integer is None and multiplies(op.node):
        return "unknown", "unknown", "no node of the optimized graph could be found that runs it"
    if op.integer is None:
        return _REMOVED
    return ("float", *why_float(op.node))


def _foreign_verdict(op: ExecutedOp, ruled: CheckedOp | None, device: str) -> tuple[Runs, str, str]:
    """What a runtime other than ONNX Runtime does with an op, and why by the rules that qc has of it."""
    if op.integer:
        return "integer", "", ""
    if op.integer is None and multiplies(op.node):
        return "unknown", "unknown", f"{device} does not tell what runs it"
    if op.integer is None:
        return _REMOVED
    rule, why = (ruled.rule, ruled.why) if ruled is not None and ruled.rule else ("unknown", "")
    told = op.reason or f"{device} runs it in float" + (f", by {op.kernel}" if op.kernel else "")
    return ("refused" if op.place else "float"), rule, f"{told}; {why}" if why else told


def rest_of(execution: Execution, ops: Sequence[CheckedOp]) -> tuple[tuple[str, float], ...]:
    """The time of the nodes that run none of the counted ops, by op type, the longest first."""
    counted = {op.runs_as for op in ops}
    seconds: dict[str, float] = {}
    for time in execution.times:
        if time.name not in counted:
            seconds[time.op_type] = seconds.get(time.op_type, 0.0) + time.seconds
    return tuple(sorted(seconds.items(), key=lambda item: -item[1]))
