"""Lets the bodies of loops read what never changes from outside."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.body_rewriter import BodyRewriter
from qc.ir.facts.scopes import RegionBranchEdge, scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model

from ..framework.base import Pass, Stage
from ..framework.context import PassContext


@dataclass(frozen=True)
class HoistLoopInvariants(Pass):
    """Takes what a Loop or Scan carries unchanged out of its interface; the body reads it from outside.

    Exporters of TensorFlow let a Loop carry the weights of a recurrent network, where nothing could treat
    them as weights. What the loop gives back in the end is what came in; a graph output stays one.
    """

    name = "hoist-loop-invariants"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = BodyRewriter(model)
        for edges in scopes_of(model.graph).branch_edges.values():
            for edge in reversed(edges):  # removing one moves the ports behind it
                if _is_invariant(edge):
                    _hoist(rewriter, edge)


def _is_invariant(edge: RegionBranchEdge) -> bool:
    """Whether the body gives back what it takes in."""
    if edge.inside is None or edge.given is None or len(edge.yielded) != 1:
        return False
    current: Value | None = edge.yielded[0]
    while current is not None and current is not edge.inside:
        producer = current.producer
        if producer is None or not producer.is_type("Identity"):
            return False
        source = producer.inputs[0]
        current = source.original if source is not None else None
    return current is not None


def _hoist(rewriter: BodyRewriter, edge: RegionBranchEdge) -> None:
    op, inside, last = edge.op, edge.inside, edge.outside
    assert inside is not None and edge.port is not None
    given = op.inputs[edge.port]
    is_inside_read = bool(inside.graph.nx.sinks(inside.id))
    is_shown = last is not None and last.is_output
    is_only = (
        op.num_outputs == 1
    )  # without any output an op is not valid; it is dead code once this is unread
    is_last_read = last is not None and bool(op.graph.nx.sinks(last.id))
    if given is None or not (is_inside_read or is_last_read or not (is_shown or is_only)):
        return
    with rewriter.action("hoist", op):
        if is_inside_read:
            rewriter.replace_uses(inside, rewriter.capture(inside.graph, given), outputs=False)
        if last is not None:
            rewriter.replace_uses(last, given, outputs=False)
        if not (is_shown or is_only):
            rewriter.remove_state(op, edge.port, edge.port - (2 if op.is_type("Loop") else 0))
