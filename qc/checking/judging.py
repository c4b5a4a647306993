"""Checking a quantized model against a target: what runs in integers, what does not, and why."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from onnx import ModelProto

from qc.ir.base.underway import underway
from qc.ir.errors import QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.model import Model
from qc.ir.onnx.load import load_model, model_folder
from qc.passes import PassContext, Progress, parse_pipeline, run_pipeline
from qc.passes.conformance import violations
from qc.passes.framework.made_for import target_in
from qc.passes.framework.target import Target, load_target
from qc.passes.quantize.placement.units import UnitMap
from qc.passes.simplify.fold_constants import constant_ops
from qc.runtime.data.inputs import free_dimensions, model_inputs
from qc.runtime.devices.known import open_device, version_of
from qc.runtime.devices.onnx_runtime import OrtCpu
from qc.runtime.execution.cost import Shapes, multiplied_by, tensor_shapes
from qc.runtime.execution.executed import is_integer_op
from qc.runtime.execution.integer_kernels import has_stored_weights
from qc.runtime.executors.in_process import OrtExecutor
from qc.runtime.protos.detach import detach_weights
from qc.runtime.protos.wiring import Node, all_nodes

from ..coverage import reads_float_data
from ..progress import progress_here
from ..reading import read_model
from .blame import Blame
from .results import Check
from .rules import as_text, by_rules, foreign_rounding, shared_codes, told
from .runtimes import device_here, multiplies, not_asked, ops_in_onnx_runtime, ops_on_device, rest_of

_READ_BACK = "import-qdq,match-supergroups"


def check(
    model: ModelProto | str | Path,
    target: str | Path | Target = "ort-cpu",
    feeds: Sequence[Feed] = (),
    *,
    base_dir: Path | None = None,
    threads: int = 1,
    device_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Check:
    """Tells which ops of a quantized model run in integers on a target, and why the others do not.

    Where the runtime of the target is installed, it opens the model, and what it runs is read back: the
    optimized graph of ONNX Runtime, the runtime model of OpenVINO, the layers of TensorRT's engine, the
    verdicts of the HTP's compiler. For other targets the rules are checked on the graph. Where the HTP takes
    every op and then gives the model up as a whole, parts of it are offered to find the ops at fault.

    Args:
        model: a QDQ model, whoever made it, or the path of one.
        target: a target, its name, or the path of its TOML file.
        feeds: the first gives the shapes of inputs where the model leaves them free, and is the warm-up; on
            the others the time of every node is measured. Without others there are no times.
        base_dir: the folder that external data of a ``ModelProto`` is relative to.
        threads: threads within an op.
        device_options: options of the runtime itself, such as ``{"htp_arch": "75"}``.
        progress: where it shows how many parts were offered; default: a line in a notebook.

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
    shared = shared_codes(ir, chosen)
    run_pipeline(parse_pipeline(_READ_BACK), ir, PassContext(target=chosen))
    _refuse_float(ir, nodes)
    counted = {op.label for graph in ir.graphs() for op in graph.ops() if reads_float_data(ir, graph, op)}
    constant = {op.label for graph in ir.graphs() for op in constant_ops(graph)}
    broken = [*foreign_rounding(nodes, chosen), *shared, *violations(ir, chosen)]
    device = device_here(chosen)
    free = list(free_dimensions(model_inputs(model)).values())
    if device is None or (device.fixed_shapes and free):
        reason = not_asked(device, chosen)
        if device_options:
            raise UsageError(f"device options are for the runtime of {chosen.name}, {reason}")
        where = f"{reason}: its rules, checked on the graph"
        checked = by_rules(ir, chosen, broken, nodes, cost, where)
        ops = [op for op in told(ir, checked.ops) if op.name not in constant]
        return replace(checked, ops=tuple(ops), made_for=target_in(model))
    opened = open_device(device.name, device_options)
    measured = feeds if len(feeds) > 1 else ()
    with underway(f"opened or ran {name}"):
        execution = opened.execution(model, measured, base_dir=base_dir, threads=threads)
    where = f"run by {device.title} {version_of(device)} on {platform.machine()}"
    if device is OrtCpu:
        ops = [*told(ir, ops_in_onnx_runtime(execution, counted, cost))]
    else:
        rules = told(ir, by_rules(ir, chosen, broken, nodes, cost, "").ops)
        ops = ops_on_device(execution, {op.name: op for op in rules}, cost, device.name)
    ops = [op for op in ops if op.name not in constant]
    explained = {op.name for op in ops if op.runs != "integer"}
    # An op that runs as a part of another, such as a Relu, is explained with it.
    together = [{op.label for op in unit.ops} for unit in UnitMap(ir, chosen).units if len(unit.ops) > 1]
    explained |= {label for labels in together if labels & explained for label in labels}
    left = [as_text(one) for one in broken if one.op is None or one.op.label not in explained]
    if execution.failure:
        blame = Blame.find(model, execution.failure, opened, base_dir, progress or progress_here())
        ops = [blame.of(op) for op in ops]
        left.insert(0, ("", "not opened", blame.sentence))
    total = sum(time.seconds for time in execution.times)
    rest, made_for = rest_of(execution, ops), target_in(model)
    return Check(chosen.name, True, where, tuple(ops), tuple(left), total, rest, made_for)


def _shapes(model: ModelProto, nodes: Sequence[Node], feeds: Sequence[Feed], base_dir: Path | None) -> Shapes:
    """The shapes of tensors: inferred, or of the first feed where a product needs what cannot be inferred."""
    fed = {name: array.shape for name, array in feeds[0].items()} if feeds else {}
    known = tensor_shapes(detach_weights(model)[0], fed)
    products = [node.proto for node in nodes if node.graph.owner is None and multiplies(node)]
    around = dict.fromkeys(name for proto in products for name in (*proto.input, *proto.output[:1]) if name)
    missing = [name for name in around if name not in known]
    if not feeds or not missing:
        return known
    try:
        return {**known, **OrtExecutor().shapes(model, missing, feeds[:1], base_dir=base_dir)}
    except QcError:  # what is wrong with the model is told when it is opened
        return known


def _refuse_float(ir: Model, nodes: Sequence[Node]) -> None:
    quantized = any(node.rounds or is_integer_op(node) or has_stored_weights(node) for node in nodes)
    if not quantized and not ir.quant.sites():
        raise UsageError(
            "nothing in the model is quantized to codes: 'qc MODEL.onnx --data DATA -o FILE' makes a FILE to "
            "check"
        )
