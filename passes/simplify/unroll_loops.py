"""Writes loops as their iterations, one behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from qc.ir.body_rewriter import BodyRewriter
from qc.ir.graph import Graph, Op
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.onnx.lower import lower

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .constants.shapes import take_inferred_shapes
from .fold_constants import FoldConstants
from .loops.iterations import iterations
from .loops.unrolling import unroll

_LOOPS = ("Loop", "Scan")


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Writes a Loop or Scan as its iterations, where the target asks for it (``decompose``), as it has none.

    How many there are must follow from constants: the limit of a Loop, a condition that a counter decides, as
    TensorFlow's exporters write it, or the length of what a Scan goes over. Loops in loops follow. What is
    constant in an iteration, as its number, is folded as by ``fold-constants``; weights stay one tensor for
    all iterations.
    """

    name = "unroll-loops"
    stage = Stage.FLOAT
    needs = frozenset({"executor", "target"})
    tolerance = 1e-6  # that of fold-constants

    most_ops: Annotated[int, Ge(1)] = option(10_000, "a loop that would become more ops stays as it is")

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        wanted = [name for name in _LOOPS if target.rule_for(name).decompose]
        rewriter, left = BodyRewriter(model), dict[Op, Remark]()
        while True:
            before = model.graph.epoch
            for op in (op for op in model.graph.ops() if op.is_type(*wanted) and op not in left):
                why = self._unroll(rewriter, op, context)
                if why:
                    left[op] = Remark(SKIP, op, op.label, f"{target.name} does not run it, and {why}")
            if model.graph.epoch == before:
                break
            with rewriter.action("infer shapes", model.graph.values()[0]):
                take_inferred_shapes(rewriter, model.graph, lower(model))
            FoldConstants().run(model, context)
        for remark in left.values():
            model.journal.note(remark)

    def _unroll(self, rewriter: BodyRewriter, op: Op, context: PassContext) -> str:
        """Writes one loop as its iterations; if that cannot be, why."""
        (body,) = op.subgraphs.values()
        count = iterations(op, context.required_executor(), most=self.most_ops // max(_size(body), 1))
        if not count:
            return f"data decides how often it runs, or it would become more than {self.most_ops} ops"
        with rewriter.action("unroll", op, f"{count} iterations"):
            unroll(rewriter, op, count)
        return ""


def _size(body: Graph) -> int:
    """How many ops a body has, with those of bodies in it."""
    return sum(len(graph.ops()) for graph in body.walk())
