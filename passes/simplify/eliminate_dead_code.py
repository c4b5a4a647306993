"""Removes ops and initializers that no graph output depends on."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.graph import Graph
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Removes ops and initializers that no graph output depends on; graph inputs stay."""

    name = "eliminate-dead-code"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in reversed(list(model.graphs())):
            _remove_unread_ops(rewriter, graph)
            for value in graph.values():
                if value.const is not None and not (value.is_input or value.is_read):
                    with rewriter.action("drop constant", value):
                        rewriter.drop_unread(value)


def _remove_unread_ops(rewriter: Rewriter, graph: Graph) -> None:
    for op in reversed(graph.ops()):
        results = [value for value in op.outputs if value is not None]
        if not any(value.is_read for value in results):
            with rewriter.action("drop op", op):
                rewriter.erase_op(op)
