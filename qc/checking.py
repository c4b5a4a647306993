"""Checking a quantized model against a target: what runs in integers, what does not, and why."""

from __future__ import annotations

import platform
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from onnx import ModelProto

from qc.ir.base.extras import install_command
from qc.ir.base.shown import Shown
from qc.ir.base.underway import underway
from qc.ir.errors import QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.facts.code_grids import grids_of_codes
from qc.ir.facts.op_table import traits_of
from qc.ir.facts.op_traits import is_grid_preserving, reads_shape_only
from qc.ir.facts.products import is_product
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.load import load_model, model_folder
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.conformance import Violation, quantizes_weights_alone, violations
from qc.passes.framework.made_for import target_in
from qc.passes.framework.target import Target, load_target
from qc.passes.quantize.placement.units import UnitMap
from qc.runtime.data.inputs import free_dimensions, model_inputs
from qc.runtime.devices.device import Device
from qc.runtime.devices.known import device_for, open_device, version_of
from qc.runtime.devices.onnx_runtime import OrtCpu
from qc.runtime.execution.cost import Shapes, multiplied_by, tensor_shapes
from qc.runtime.execution.executed import ExecutedOp, Execution, is_integer_op
from qc.runtime.execution.integer_kernels import has_stored_weights, misread, why_float
from qc.runtime.executors.in_process import OrtExecutor
from qc.runtime.protos.detach import detach_weights
from qc.runtime.protos.wiring import Node, all_nodes

from .coverage import reads_float_data
from .reading import read_model

Runs = Literal["integer", "float", "refused", "breaks", "wrong", "removed", "unknown"]

Cost = Callable[[Node], int | None]  # the multiplications of an op

_REMOVED: tuple[Runs, str, str] = ("removed", "", "")
_READ_BACK = "import-qdq,match-supergroups"


@dataclass(frozen=True)
class CheckedOp:
    """One op of the model that computes on float data, quantized or not, as a coverage counts them.

    Attributes:
        name: how messages name it: its type and name, or its first result.
        op_type: its op type.
        runs: ``integer``; ``float``; ``refused`` by the device, so that it falls to the CPU; ``wrong`` for
            integers with wrong numbers; ``removed`` for an op that only moves data and that the runtime does
            without; ``unknown`` if no node was found that runs it.
            On a target that is not on this machine, ``integer`` for an op that meets all rules for integers,
            ``breaks`` for one that does not.
        kernel: the op type that runs it, such as ``QLinearConv``; empty on targets that are not here.
        runs_as: the node of the optimized graph that does; several ops may be merged into one.
        rule, why: the rule behind anything but ``integer``, in a word or two, and the reason in a sentence.
        multiplications: those with accumulation of an op that sums products, in bodies for every iteration;
            of others 0. Where shapes are not known even with a feed, as in bodies, each number of its weights
            counts once; without a feed it is None.
        seconds: the measured time of its kernel in one run; 0 if it was not measured.
    """

    name: str
    op_type: str
    runs: Runs
    kernel: str = ""
    runs_as: str = ""
    rule: str = ""
    why: str = ""
    multiplications: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Check(Shown):
    """The result of :func:`check`.

    Attributes:
        target: the name of the target.
        executed: whether the model was opened by the runtime of the target, here; else its rules were read.
        where: the same in words, with the version of the runtime.
        ops: the ops that read float data, quantized or not, in the order of the model.
        broken: rules of the target that the model breaks and that no op of ``ops`` has for its reason: of the
            model as a whole, or of ops that run in integers here all the same. As ``(op, rule, sentence)``.
        seconds: the time of all nodes in one run; 0 if it was not measured.
        rest: of ``seconds``, that of nodes that run none of ``ops``, by their op type, the longest first.
        made_for: the target that qc made the model for, as its metadata says; empty if it does not.
    """

    target: str
    executed: bool
    where: str
    ops: tuple[CheckedOp, ...]
    broken: tuple[tuple[str, str, str], ...] = ()
    seconds: float = 0.0
    rest: tuple[tuple[str, float], ...] = ()
    made_for: str = ""

    @property
    def counted(self) -> tuple[CheckedOp, ...]:
        """The ops that compute: all but those that were removed."""
        return tuple(op for op in self.ops if op.runs != "removed")

    @property
    def is_weighted(self) -> bool:
        """Whether :attr:`share` counts multiplications; if they are not known it counts ops that multiply."""
        numbers = [op.multiplications for op in self.counted]
        return None not in numbers and any(numbers)

    @property
    def share(self) -> float:
        """The share of the multiplications of ``counted`` that run in integers, 0 to 1."""
        multiplying = [op for op in self.counted if op.multiplications != 0] or self.counted
        weights = [op.multiplications or 0 if self.is_weighted else 1 for op in multiplying]
        integer = sum(w for w, op in zip(weights, multiplying, strict=True) if op.runs == "integer")
        return integer / sum(weights) if weights else 0.0

    @property
    def time_share(self) -> float | None:
        """The share of the time of all nodes that those take which run in integers; None if not measured."""
        nodes = {op.runs_as: op.seconds for op in self.counted if op.runs == "integer"}
        return sum(nodes.values()) / self.seconds if self.seconds else None


def check(
    model: ModelProto | str | Path,
    target: str | Path | Target = "ort-cpu",
    feeds: Sequence[Feed] = (),
    *,
    base_dir: Path | None = None,
    threads: int = 1,
    device_options: Mapping[str, str] | None = None,
) -> Check:
    """Tells which ops of a quantized model run in integers on a target, and why the others do not.

    Where the runtime of the target is installed, it opens the model, and what it runs is read back: the
    optimized graph of ONNX Runtime, the runtime model of OpenVINO, the layers of TensorRT's engine, the
    verdicts of the HTP's compiler. For other targets the rules are checked on the graph.

    Args:
        model: a QDQ model, whoever made it, or the path of one.
        target: a target, its name, or the path of its TOML file.
        feeds: the first gives the shapes of inputs where the model leaves them free, and is the warm-up; on
            the others the time of every node is measured. Without others there are no times.
        base_dir: the folder that external data of a ``ModelProto`` is relative to.
        threads: threads within an op.
        device_options: options of the runtime itself, such as ``{"htp_arch": "75"}``.

    Raises:
        UsageError: the model holds nothing quantized, or there is no such target or option.
        ModelError: the model is invalid, or the runtime cannot load it.
    """
    chosen = target if isinstance(target, Target) else load_target(str(target))
    ir = read_model(model)
    name = "a model" if isinstance(model, ModelProto) else f"'{model}'"
    if not isinstance(model, ModelProto):
        model, base_dir = load_model(model), model_folder(model)
    nodes = list(all_nodes(model.graph))
    shapes = _shapes(model, nodes, feeds, base_dir)
    cost = partial(multiplied_by, shapes=shapes, estimates=bool(feeds))
    shared = _shared_codes(ir, chosen)
    run_pipeline(parse_pipeline(_READ_BACK), ir, PassContext(target=chosen))
    _refuse_float(ir, nodes)
    counted = {op.label for graph in ir.graphs() for op in graph.ops() if reads_float_data(ir, graph, op)}
    broken = [*_foreign_rounding(nodes, chosen), *shared, *violations(ir, chosen)]
    device = device_here(chosen)
    free = list(free_dimensions(model_inputs(model)).values())
    if device is None or (device.fixed_shapes and free):
        if device_options:
            raise UsageError(
                f"device options are for a runtime, and none is asked: {_not_asked(device, chosen)}"
            )
        checked = _by_rules(ir, chosen, broken, nodes, cost, _not_asked(device, chosen))
        return replace(checked, ops=_told(ir, checked.ops), made_for=target_in(model))
    opened = open_device(device.name, device_options)
    measured = feeds if len(feeds) > 1 else ()
    with underway(f"opened or ran {name}"):
        execution = opened.execution(model, measured, base_dir=base_dir, threads=threads)
    where = f"run by {device.title} {version_of(device)} on {platform.machine()}"
    if device is OrtCpu:
        found = (op for op in execution.ops if _counts(op, counted))
        ops = [*_told(ir, [_checked(op, cost, *_verdict(op)) for op in found])]
    else:
        rules = _told(ir, _by_rules(ir, chosen, broken, nodes, cost, "").ops)
        ruled = {op.name: op for op in rules}
        alone = next((op for op in rules if op.rule == "weights alone"), None)  # then it is that of all
        told = ((op, ruled.get(op.node.label, alone)) for op in execution.ops if _counts(op, ruled))
        ops = [_checked(op, cost, *_foreign_verdict(op, rule, device.name)) for op, rule in told]
    explained = {op.name for op in ops if op.runs != "integer"}
    # An op that runs as a part of another, such as a Relu, is explained with it.
    together = [{op.label for op in unit.ops} for unit in UnitMap(ir, chosen).units if len(unit.ops) > 1]
    explained |= {label for labels in together if labels & explained for label in labels}
    left = [_as_text(one) for one in broken if one.op is None or one.op.label not in explained]
    if execution.failure:
        left.insert(0, ("", "not opened", execution.failure))
    total = sum(time.seconds for time in execution.times)
    rest, made_for = _rest(execution, ops), target_in(model)
    return Check(chosen.name, True, where, tuple(ops), tuple(left), total, rest, made_for)


def _shapes(model: ModelProto, nodes: Sequence[Node], feeds: Sequence[Feed], base_dir: Path | None) -> Shapes:
    """The shapes of tensors: inferred, or of the first feed where a product needs what cannot be inferred."""
    fed = {name: array.shape for name, array in feeds[0].items()} if feeds else {}
    known = tensor_shapes(detach_weights(model)[0], fed)
    products = [node.proto for node in nodes if node.graph.owner is None and _is_product(node)]
    around = dict.fromkeys(name for proto in products for name in (*proto.input, *proto.output[:1]) if name)
    missing = [name for name in around if name not in known]
    if not feeds or not missing:
        return known
    try:
        return {**known, **OrtExecutor().shapes(model, missing, feeds[:1], base_dir=base_dir)}
    except QcError:  # what is wrong with the model is told when it is opened
        return known


def device_here(target: Target) -> type[Device] | None:
    """The runtime of a target on this kind of machine; None if there is none, or it is not installed."""
    fits = not target.machines or platform.machine() in target.machines
    device = device_for(target.provider) if fits else None
    return device if device is not None and version_of(device) is not None else None


def _not_asked(device: type[Device] | None, target: Target) -> str:
    """Why the runtime of a target was not asked."""
    known = device_for(target.provider)
    rules = "its rules, checked on the graph"
    if device is not None:
        return f"which takes no free dimensions (fix them when compiling, --fix-shape NAME=1): {rules}"
    if known is not None and version_of(known) is None:
        return f"whose runtime is not installed ({install_command(known.extra)}): {rules}"
    return f"which is not on this machine: {rules}"


def _told(ir: Model, ops: Sequence[CheckedOp]) -> tuple[CheckedOp, ...]:
    """The ops, each that is float on purpose with that reason."""
    if not quantizes_weights_alone(ir):
        return tuple(ops)
    why = "weights alone are quantized in this model, and multiply float data"
    # By rules alone, without kernels, whatever breaks none counts as integer.
    told = (not op.kernel or op.rule in ("float input", "unsupported op") for op in ops)
    return tuple(
        replace(op, runs="float", rule="weights alone", why=why) if is_told else op
        for op, is_told in zip(ops, told, strict=True)
    )


def _refuse_float(ir: Model, nodes: Sequence[Node]) -> None:
    quantized = any(node.rounds or is_integer_op(node) or has_stored_weights(node) for node in nodes)
    if not quantized and not ir.quant.sites():
        raise UsageError(
            "nothing in the model is quantized: 'qc MODEL.onnx --data DATA -o FILE' makes a FILE to check"
        )


def _foreign_rounding(nodes: Sequence[Node], target: Target) -> list[Violation]:
    """The quantize ops of a domain that the target does not know."""
    found = []
    for node in nodes:
        if node.rounds and node.proto.domain not in ("", "ai.onnx", target.extension_domain):
            text = f"{node.label} is of the domain '{node.proto.domain}', which {target.name} does not know"
            found.append(Violation(None, "domain", text))
    return found


def _shared_codes(ir: Model, target: Target) -> list[Violation]:
    """The constants of codes that are dequantized on several grids, where a device knows one."""
    if not target.one_grid:
        return []
    found, scopes = [], scopes_of(ir.graph)
    for value in (value for graph in ir.graphs() for value in graph.values() if value.const is not None):
        count = len(grids_of_codes(scopes, value))
        if count > 1:
            text = f"the codes '{value.name}' are read on {count} grids, and {target.name} takes one for all"
            mend = "its numbers are wrong; 'qc FILE --passes import-qdq,insert-qdq' gives each its own"
            found.append(Violation(None, "shared codes", f"{text}: {mend}"))
    return found


# -- by the runtime ---------------------------------------------------------------------------------------


def _counts(op: ExecutedOp, counted: Container[str]) -> bool:
    """Whether the op computes on floats or codes: what reads only shapes does not."""
    if traits_of(op.node.op_type).reads_shape:
        return False
    reads_codes = op.node.reads_grid() or _is_product(op.node) or bool(op.integer)
    return reads_codes or op.node.label in counted


def _is_product(node: Node) -> bool:
    return is_product(node.op_type, node.proto.domain)


def _checked(op: ExecutedOp, cost: Cost, runs: Runs, rule: str, why: str) -> CheckedOp:
    label, op_type = op.node.label, op.node.op_type
    return CheckedOp(label, op_type, runs, op.kernel, op.runs_as, rule, why, cost(op.node), op.seconds)


def _verdict(op: ExecutedOp) -> tuple[Runs, str, str]:
    if op.integer:
        wrong = misread(op.node)
        return ("wrong", *wrong) if wrong is not None else ("integer", "", "")
    if op.integer is None and _is_product(op.node):
        return "unknown", "unknown", "no node of the optimized graph could be found that runs it"
    if op.integer is None:
        return _REMOVED
    return ("float", *why_float(op.node))


def _foreign_verdict(op: ExecutedOp, ruled: CheckedOp | None, device: str) -> tuple[Runs, str, str]:
    """What a runtime other than ONNX Runtime does with an op, and why by the rules that qc has of it."""
    if op.integer:
        return "integer", "", ""
    if op.integer is None:
        return (
            ("unknown", "unknown", f"{device} does not tell what runs it")
            if _is_product(op.node)
            else _REMOVED
        )
    rule, why = (ruled.rule, ruled.why) if ruled is not None and ruled.rule else ("unknown", "")
    told = op.reason or f"{device} runs it in float" + (f", by {op.kernel}" if op.kernel else "")
    return ("refused" if op.place else "float"), rule, f"{told}; {why}" if why else told


def _rest(execution: Execution, ops: Sequence[CheckedOp]) -> tuple[tuple[str, float], ...]:
    """The time of the nodes that run none of the counted ops, by op type, the longest first."""
    counted = {op.runs_as for op in ops}
    seconds: dict[str, float] = {}
    for time in execution.times:
        if time.name not in counted:
            seconds[time.op_type] = seconds.get(time.op_type, 0.0) + time.seconds
    return tuple(sorted(seconds.items(), key=lambda item: -item[1]))


# -- by the rules -----------------------------------------------------------------------------------------


def _by_rules(
    ir: Model, target: Target, broken: Sequence[Violation], nodes: Sequence[Node], cost: Cost, where: str
) -> Check:
    costs = {out: cost(node) for node in nodes for out in node.proto.output[:1]}
    units = UnitMap(ir, target)
    reasons = {one.op: one for one in reversed(broken) if one.op is not None}
    ops = []
    for op in units.scopes.ops:
        reads = [(value, port) for port, value in enumerate(op.graph.op_inputs(op)) if value is not None]
        data = [value for value, port in reads if ir.quant.of_use(value, op, port) is not None]
        if not (reads_float_data(ir, op.graph, op) or (data and not reads_shape_only(op))):
            continue
        made = next((value.name for value in op.graph.op_outputs(op) if value is not None), "")
        multiplied = costs.get(made)
        unit = units.unit_of(op)
        reason = next((reasons[one] for one in unit.ops if one in reasons), None)
        if reason is not None:
            ops.append(
                CheckedOp(op.label, op.op_type, "breaks", "", "", reason.rule, reason.text, multiplied)
            )
        elif (unit in units.integer and data) or (units.is_carry(op) and is_grid_preserving(op)):
            ops.append(CheckedOp(op.label, op.op_type, "integer", multiplications=multiplied))
        else:
            infinite = next((one for one in op.graph.op_outputs(op) if one and units.is_infinite(one)), None)
            rule, why = _left_float(target, unit in units.integer, unit.rule.why, infinite)
            ops.append(CheckedOp(op.label, op.op_type, "float", "", "", rule, why, multiplied))
    whole = tuple(_as_text(one) for one in broken if one.op is None)
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


def _as_text(violation: Violation) -> tuple[str, str, str]:
    return (violation.op.label if violation.op is not None else "", violation.rule, violation.text)
