"""Replaces calls of the model's own functions by what the functions do."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir import lift
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.onnx.inlining import inlined
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext


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
        written_out = lift(inlined(lower(model)), model.base_dir)
        left = _first_call(written_out)
        if left is not None:
            context.notes.append(
                f"the function '{left.op_type}' of domain '{left.domain}' was not inlined, as it is written "
                "for other versions of the operators than the model: its calls stay float"
            )
        if len(written_out.functions) < len(model.functions):
            rewriter = Rewriter(model)
            with rewriter.action("inline functions", call):
                rewriter.replace_graphs(written_out)


def _first_call(model: Model) -> Op | None:
    """The first op that is a call of a function of the model."""
    ops = (op for graph in model.graphs() for op in graph.ops())
    return next((op for op in ops if (op.domain, op.op_type, op.overload) in model.functions), None)
