"""Writes what only moves numbers in as many dimensions as the target has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from qc.ir.graph import Graph, Op, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .decompositions.builder import Builder, Writer, put_in_place
from .decompositions.movement import gather_in_three, lengths_of, reshaped, split_in_three, transpose_in


@dataclass(frozen=True)
class LimitRanks(Pass):
    """Writes Transpose, Split and Gather in no more dimensions than the target has (``most_dimensions``).

    Dimensions that stay side by side become one, and those of length 1 go. Of the Reshapes around them, as
    windows of pictures, heads of attention and shuffled pixels are written, one is left on each side. All
    lengths must be known.
    """

    name = "limit-ranks"
    stage = Stage.FLOAT
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        rank = context.required_target().most_dimensions
        rewriter = Rewriter(model)
        for graph in model.graph.walk() if rank else ():
            for op in [op for op in graph.ops() if _rank(op) > rank]:
                self._write(rewriter, op, rank)
            for op in [op for op in graph.ops() if op.is_type("Reshape")]:
                _join(rewriter, graph, op, rank)

    def _write(self, rewriter: Rewriter, op: Op, rank: int) -> None:
        plans: Mapping[str, Callable[[Op], Writer | None]] = {
            "Flatten": reshaped,
            "Gather": gather_in_three,
            "Split": split_in_three,
            "Squeeze": reshaped,
            "Transpose": partial(transpose_in, rank=rank),
            "Unsqueeze": reshaped,
        }
        if op.is_type("Reshape"):
            return
        write = plans[op.op_type](op) if op.is_type(*plans) else None
        if write is None:
            reason = f"it has {_rank(op)} dimensions, and the target no more than {rank}"
            rewriter.model.journal.note(Remark(SKIP, op, op.label, reason))
            return
        with rewriter.action("fewer dimensions", op):
            _replace(rewriter, op, write(Builder(rewriter, op)))


def _replace(rewriter: Rewriter, op: Op, made: list[Value | None]) -> None:
    for old, new in zip(op.graph.op_outputs(op), made, strict=True):
        if old is not None and new is not None:
            put_in_place(rewriter, old, new)
    rewriter.erase_op(op)


def _rank(op: Op) -> int:
    """The most dimensions of what an op reads and makes."""
    values = (*op.graph.op_inputs(op)[:1], *op.graph.op_outputs(op))
    return max((len(value.type.shape or ()) for value in values if value is not None), default=0)


def _join(rewriter: Rewriter, graph: Graph, op: Op, rank: int) -> None:
    """Lets a Reshape of what a Reshape made of too many dimensions read what that reads."""
    data, wanted = graph.op_inputs(op)[0], lengths_of(graph.op_outputs(op)[0])
    source = data
    while source is not None and (producer := graph.producer(source)) is not None:
        if not producer.is_type("Reshape") or _rank(producer) <= rank:
            break
        source = graph.op_inputs(producer)[0]
    if source is None or source is data or wanted is None or lengths_of(source) is None:
        return
    with rewriter.action("join", op):
        build = Builder(rewriter, op)
        made = build.op("Reshape", source, build.shape(wanted), shape=wanted)
        _replace(rewriter, op, [made])
        while data is not None and not graph.is_read(data) and (producer := graph.producer(data)) is not None:
            data = graph.op_inputs(producer)[0]
            rewriter.erase_op(producer)
