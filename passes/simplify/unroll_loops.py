"""Writes loops as their iterations, one behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from qc.ir.body_rewriter import BodyRewriter
from qc.ir.facts.op_traits import is_random
from qc.ir.graph import Op
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
    TensorFlow's exporters write it, or the length of what a Scan (of opset 9 and newer) goes over. Inner
    loops come before those around them; what one loop tells of another is known in the next round. What is
    constant in an iteration, as its number, is folded as by ``fold-constants``; weights stay one tensor for
    all iterations. A loop whose body makes random numbers stays.
    """

    name = "unroll-loops"
    stage = Stage.FLOAT
    needs = frozenset({"executor"})
    uses = frozenset({"target"})
    tolerance = 1e-6  # that of fold-constants

    most_ops: Annotated[int, Ge(1)] = option(
        10_000, "into how many ops all loops together may be written; a loop that would need more stays"
    )

    def run(self, model: Model, context: PassContext) -> None:
        target = context.target
        if target is None:
            return
        wanted = [name for name in _LOOPS if target.rule_for(name).decompose]
        rewriter, made = BodyRewriter(model), 0
        while True:
            left = []
            loops = [op for graph in reversed(list(model.graph.walk())) for op in graph.ops()]
            before = made
            for op in (op for op in loops if op.is_type(*wanted)):
                count, why = self._count(op, context, self.most_ops - made)
                if why:
                    left.append(Remark(SKIP, op, op.label, f"{target.name} does not run it, and {why}"))
                    continue
                made += count * _size(op)
                with rewriter.action("unroll", op, f"{count} iterations"):
                    unroll(rewriter, op, count)
            if made == before:
                break
            with rewriter.action("infer shapes", model.graph.values()[0]):
                take_inferred_shapes(rewriter, model.graph, lower(model))
            FoldConstants().run(model, context)
        for remark in left:
            model.journal.note(remark)

    def _count(self, op: Op, context: PassContext, room: int) -> tuple[int, str]:
        """How often a loop runs, if it can be written so; else why it cannot."""
        bodies = [graph for body in op.subgraphs.values() for graph in body.walk()]
        if any(is_random(inner) for graph in bodies for inner in graph.ops()):
            return 0, "its iterations make random numbers"
        count = iterations(op, context.required_executor(), most=room // _size(op))
        if count is None:
            return (
                0,
                f"data decides how often it runs, or all loops would become more than {self.most_ops} ops",
            )
        return count, "" if count else "it never runs"


def _size(op: Op) -> int:
    """How many ops the body of a loop has, with those of bodies in it; at least 1."""
    return max(sum(len(graph.ops()) for body in op.subgraphs.values() for graph in body.walk()), 1)
