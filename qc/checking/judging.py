"""Checking a quantized model against a target: what runs in integers, what does not, and why."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from onnx import ModelProto

from qc.ir.base.underway import underway
from qc.ir.errors import QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.model import Model
from qc.ir.onnx.load import load_model, model_folder
from qc.passes import PassContext, Progress, parse_pipeline, run_pipeline
from qc.passes.conformance import Violation, violations
from qc.passes.framework.made_for import target_in
from qc.passes.framework.target import Target, load_target
from qc.passes.quantize.placement.units import UnitMap
from qc.passes.simplify.fold_constants import constant_ops
from qc.runtime.data.inputs import free_dimensions, model_inputs
from qc.runtime.devices.known import Device, open_device, version_of
from qc.runtime.devices.onnx_runtime import OrtCpu
from qc.runtime.execution.cost import Shapes, multiplied_by, tensor_shapes
from qc.runtime.execution.executed import Execution, is_integer_op
from qc.runtime.execution.integer_kernels import has_stored_weights
from qc.runtime.executors.in_process import OrtExecutor
from qc.runtime.protos.detach import detach_weights
from qc.runtime.protos.wiring import Node, all_nodes

from ..coverage import reads_float_data
from ..processor import target_made_for
from ..progress import progress_here
from ..reading import read_model
from .blame import Blame
from .results import Check, CheckedOp
from .rules import Cost, as_text, by_rules, data_weights, foreign_rounding, shared_codes, told
from .runtimes import device_here, multiplies, not_asked, ops_in_onnx_runtime, ops_on_device, rest_of

_READ_BACK = "import-qdq,match-supergroups"


def check(
    model: ModelProto | str | Path,
    target: str | Path | Target | None = None,
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
        target: a target, its name, or the path of its TOML file; default: the one of qc that the model was
            made for, else this processor.
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
    if target is None:
        target = target_made_for(model if isinstance(model, ModelProto) else load_model(model))
    chosen = load_target(target)
    asked = _Asked.of(model, chosen, feeds, base_dir)
    device = device_here(chosen)
    if device is None or (device.fixed_shapes and free_dimensions(model_inputs(asked.proto))):
        reason = not_asked(device, chosen)
        if device_options:
            raise UsageError(f"device options are for the runtime of {chosen.name}, {reason}")
        return asked.by_rules(f"{reason}: its rules, checked on the graph")
    opened = open_device(device.name, device_options)
    with underway(f"opened or ran {asked.name}"):
        measured = feeds if len(feeds) > 1 else ()
        execution = opened.execution(asked.proto, measured, base_dir=asked.base_dir, threads=threads)
    found = asked.by_runtime(device, execution)
    if not execution.failure:
        return found
    blame = Blame.find(asked.proto, execution.failure, opened, asked.base_dir, progress or progress_here())
    left = (("", "not opened", blame.sentence), *found.broken)
    return replace(found, ops=tuple(blame.of(op) for op in found.ops), broken=left)


@dataclass(frozen=True)
class _Asked:
    """A model and a target, and what is read off the model for either way of judging.

    Attributes:
        name: how messages name the model.
        constant: the labels of ops that compute constants, which no way counts.
    """

    name: str
    proto: ModelProto
    base_dir: Path | None
    ir: Model
    target: Target
    nodes: Sequence[Node]
    cost: Cost
    broken: Sequence[Violation]
    constant: frozenset[str]

    @classmethod
    def of(
        cls, model: ModelProto | str | Path, target: Target, feeds: Sequence[Feed], base_dir: Path | None
    ) -> _Asked:
        """Raises UsageError if nothing in the model is quantized, ModelError if it is invalid."""
        ir = read_model(model, base_dir)
        name = "a model" if isinstance(model, ModelProto) else f"'{model}'"
        if not isinstance(model, ModelProto):
            model, base_dir = load_model(model), model_folder(model)
        nodes = list(all_nodes(model.graph))
        shapes = _shapes(model, nodes, feeds, base_dir)
        as_read = [*shared_codes(ir, target), *data_weights(ir, target)]
        run_pipeline(parse_pipeline(_READ_BACK), ir, PassContext(target=target))
        _refuse_float(ir, nodes)
        return cls(
            name,
            model,
            base_dir,
            ir,
            target,
            nodes,
            partial(multiplied_by, shapes=shapes, estimates=bool(feeds)),
            [*foreign_rounding(nodes, target), *as_read, *violations(ir, target)],
            frozenset(op.label for graph in ir.graphs() for op in constant_ops(graph)),
        )

    def by_rules(self, where: str) -> Check:
        """What the rules of the target say of the graph."""
        checked = by_rules(self.ir, self.target, self.broken, self.nodes, self.cost, where)
        ops = [op for op in told(self.ir, checked.ops) if op.name not in self.constant]
        return replace(checked, ops=tuple(ops), made_for=target_in(self.proto))

    def by_runtime(self, device: type[Device], execution: Execution) -> Check:
        """What a runtime told that it runs, and of the rules what that does not explain."""
        if device is OrtCpu:
            found = told(self.ir, ops_in_onnx_runtime(execution, self._counted(), self.cost))
        else:
            ruled = {op.name: op for op in self.by_rules("").ops}
            runs_all = not self.target.models.mixes_float
            found = tuple(ops_on_device(execution, ruled, self.cost, device.name, runs_all))
        ops = tuple(op for op in found if op.name not in self.constant)
        return Check(
            self.target.name,
            True,
            f"run by {device.title} {version_of(device)} on {platform.machine()}",
            ops,
            self._unexplained(ops),
            sum(time.seconds for time in execution.times),
            rest_of(execution, ops),
            target_in(self.proto),
        )

    def _counted(self) -> set[str]:
        """The labels of the ops that compute on float data."""
        return {op.label for graph in self.ir.graphs() for op in graph.ops() if reads_float_data(self.ir, op)}

    def _unexplained(self, ops: Sequence[CheckedOp]) -> tuple[tuple[str, str, str], ...]:
        """The rules that are broken elsewhere than at ops that the runtime gave a reason for."""
        explained = {op.name for op in ops if op.runs != "integer"}
        # An op that runs as a part of another, such as a Relu, is explained with it.
        units = [unit for unit in UnitMap(self.ir, self.target).units if len(unit.ops) > 1]
        together = [{op.label for op in unit.ops} for unit in units]
        explained |= {label for labels in together if labels & explained for label in labels}
        return tuple(as_text(one) for one in self.broken if one.op is None or one.op.label not in explained)


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
