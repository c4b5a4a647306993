"""The opset that a model is compiled in for a target."""

from __future__ import annotations

from qc.ir.facts.op_traits import RANDOM
from qc.ir.model import Model
from qc.ir.onnx.lift import lift
from qc.ir.onnx.lower import lower
from qc.passes import PassContext, Pipeline
from qc.passes.framework.target import Target
from qc.passes.quantize.configure_quantizers import ConfigureQuantizers
from qc.passes.simplify.decompose_ops import DecomposeOps
from qc.passes.simplify.eliminate_identity import EliminateIdentity
from qc.passes.simplify.fix_shapes import FixShapes
from qc.passes.simplify.fuse_supergroups import FuseSupergroups, opset_of_forms

from ..reading import declare_as, with_opset

# The last opset in which ONNX Runtime runs these ops, as of 1.32; newer ones only add a type to them.
_LAST_OF_OLD = 21
# The first opset with the ops in which ONNX Runtime rounds float biases, as quantsim leaves them.
_OF_FLOAT_BIASES = 13
_OLD = (*RANDOM, "GlobalLpPool", "MaxRoiPool", "RoiAlign")


def in_opset_of(target: Target, ir: Model, pipeline: Pipeline) -> Model:
    """The model in an opset that the target reads, and that has the ops which it runs or the pipeline makes.

    Where ONNX cannot convert it to an older one, as there is no Attention before opset 23, ops are written in
    others first. A model that cannot be converted all the same stays as it is.

    Raises:
        ModelError: ONNX cannot convert it to one with quantize ops.
    """
    fuses = any(isinstance(step, FuseSupergroups) for step in pipeline.passes())
    forms = opset_of_forms(_without_identities(ir, pipeline), target) if fuses else 0
    biases = any(isinstance(step, ConfigureQuantizers) for step in pipeline.passes())
    of_pipeline = max(forms, _OF_FLOAT_BIASES if biases else 0)
    wanted = max(target.models.opset, of_pipeline, _opset_of_kernels(ir, target))
    if ir.opset <= _LAST_OF_OLD and _has_old_ops(ir):
        wanted = min(wanted, _LAST_OF_OLD)
    found = with_opset(ir, wanted, target.models.latest_opset)
    if found.opset <= target.models.latest_opset:
        return found
    return with_opset(_decomposed(target, found, pipeline), wanted, target.models.latest_opset)


def _has_old_ops(ir: Model) -> bool:
    return any(op.is_type(*_OLD) for op in ir.ops())


def _without_identities(ir: Model, pipeline: Pipeline) -> Model:
    """The model without what is between ops that belong together, such as Transposes."""
    steps = [step for step in pipeline.passes() if isinstance(step, EliminateIdentity)]
    if not steps or not any(op.is_type("Reshape", "Transpose") for op in ir.ops()):
        return ir
    copy = lift(lower(ir), ir.base_dir)
    for step in steps:
        step.run(copy, PassContext())
    return copy


def _opset_of_kernels(ir: Model, target: Target) -> int:
    """The first opset in which the target runs all ops in integers that it does in newer ones."""
    ops = {(op.op_type, op.domain) for op in ir.ops()}
    return max((target.rule_for(*op).since for op in ops), default=0)


def _decomposed(target: Target, ir: Model, pipeline: Pipeline) -> Model:
    """The model with ops written in others, and the interface that it was given with."""
    for step in pipeline.passes():
        if isinstance(step, FixShapes | DecomposeOps):  # ops in others need lengths
            step.run(ir, PassContext(target=target))
    proto = lower(ir)
    declare_as(proto, ir.origin)
    return lift(proto, ir.base_dir)
