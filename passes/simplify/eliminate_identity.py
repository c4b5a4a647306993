"""Removes ops that return their input."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.graph import Graph, Op
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext


@dataclass(frozen=True)
class EliminateIdentity(Pass):
    """Removes Identity, inference-time Dropout and casts to the type a tensor already has.

    An identity that joins a graph input or an initializer to a graph output stays: without it the output
    would need another name.
    """

    name = "eliminate-identity"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graphs():
            for op in graph.ops():
                if _is_identity(graph, op):
                    _bypass(rewriter, graph, op)


def _is_identity(graph: Graph, op: Op) -> bool:
    if op.is_type("Identity"):
        return True
    if op.is_type("Dropout"):
        mask = graph.op_outputs(op)[1] if op.num_outputs > 1 else None
        training = graph.op_inputs(op)[2] if op.num_inputs > 2 else None
        return training is None and (mask is None or not graph.is_read(mask))
    if op.is_type("Cast"):
        given = graph.op_inputs(op)[0]
        return given is not None and given.type.elem_type == op.attribute("to") != 0
    return False


def _bypass(rewriter: Rewriter, graph: Graph, op: Op) -> None:
    source, result = graph.op_inputs(op)[0], graph.op_outputs(op)[0]
    if source is None or result is None:
        return
    fixed_name = graph.producer(source) is None or graph.is_output(source)
    if graph.is_output(result) and fixed_name:
        return
    with rewriter.action("bypass", op):
        rewriter.replace_uses(result, source)
        rewriter.erase_op(op)
