"""Replaces calls of the model's own functions by what the functions do."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto, inliner

from qc.ir import lift
from qc.ir.errors import ModelError
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Puts the ops of a local function where it is called, in all graphs and functions of the model.

    Every call then has tensors of its own, with types, grids and reasons; a function is written for all of
    its calls at once. A model without functions is left as it is. ONNX does the inlining; a function that
    wants another version of the operators than the model stays, with a note.
    """

    name = "inline-functions"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        call = _first_call(model)
        if call is None:
            return
        proto = _with_one_version(lower(model))
        try:
            inlined = lift(inliner.inline_local_functions(proto), model.base_dir)
        except Exception as error:  # the inliner raises bare exceptions of its C++ library
            reason = " ".join(str(error).split())
            raise ModelError(f"ONNX cannot inline the functions of the model ({reason})") from error
        left = _first_call(inlined)
        if left is not None:
            context.notes.append(
                f"the function '{left.op_type}' of domain '{left.domain}' was not inlined, as it is written "
                "for other versions of the operators than the model: its calls stay float"
            )
        if len(inlined.functions) < len(model.functions):
            rewriter = Rewriter(model)
            with rewriter.action("inline functions", call):
                rewriter.replace_graphs(inlined)


def _with_one_version(proto: ModelProto) -> ModelProto:
    """Lets functions ask for the version of their domains that the model asks for.

    What they do is in the model, whatever its version; exporters of JAX name two.
    """
    versions = {opset.domain: opset.version for opset in proto.opset_import}
    own = {function.domain for function in proto.functions}.difference(_STANDARD)
    for opset in (opset for function in proto.functions for opset in function.opset_import):
        if opset.domain in own:
            opset.version = versions.get(opset.domain, opset.version)
    return proto


def _first_call(model: Model) -> Op | None:
    """The first op that is a call of a function of the model."""
    ops = (op for graph in model.graphs() for op in graph.ops())
    return next((op for op in ops if (op.domain, op.op_type, op.overload) in model.functions), None)
