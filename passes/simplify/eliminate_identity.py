"""Removes ops that return their input."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext


@dataclass(frozen=True)
class EliminateIdentity(Pass):
    """Removes Identity, inference-time Dropout, casts to the type a tensor has, and Concat of one tensor.

    Constants without a number, with which some exports begin a state, do not count in a Concat. An identity
    that joins a graph input or an initializer to a graph output stays: without it the output would need
    another name.
    """

    name = "eliminate-identity"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graphs():
            for op in graph.ops():
                source = _returned(graph, op)
                if source is not None:
                    _bypass(rewriter, graph, op, source)


def _returned(graph: Graph, op: Op) -> Value | None:
    """The input that an op returns; None if it does something."""
    given = graph.op_inputs(op)[0] if op.num_inputs else None
    if op.is_type("Identity"):
        return given
    if op.is_type("Dropout"):
        mask = graph.op_outputs(op)[1] if op.num_outputs > 1 else None
        training = graph.op_inputs(op)[2] if op.num_inputs > 2 else None
        return given if training is None and (mask is None or not graph.is_read(mask)) else None
    if op.is_type("Cast"):
        return given if given is not None and given.type.elem_type == op.attribute("to") != 0 else None
    if op.is_type("Concat"):
        full = [value for value in graph.op_inputs(op) if not _is_empty(value, op.attribute("axis", 0))]
        return full[0] if len(full) == 1 else None
    return None


def _is_empty(value: Value | None, axis: int) -> bool:
    """Whether it is a constant of length 0; that some models say so of an input means that it is free."""
    const = value.original.const if value is not None else None
    return const is not None and -len(const.shape) <= axis < len(const.shape) and const.shape[axis] == 0


def _bypass(rewriter: Rewriter, graph: Graph, op: Op, source: Value) -> None:
    result = graph.op_outputs(op)[0]
    if result is None:
        return
    fixed_name = graph.producer(source) is None or graph.is_output(source)
    if graph.is_output(result) and fixed_name:
        return
    with rewriter.action("bypass", op):
        rewriter.replace_uses(result, source)
        rewriter.erase_op(op)
