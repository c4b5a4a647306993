"""Writes ops in as many dimensions as the target runs them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qc.ir.errors import listed
from qc.ir.graph import Op, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .decompositions import merging, ranks
from .decompositions.builder import Builder, Writer, lengths_of, put_in_place
from .decompositions.movement import gather_in_three, reshaped, split_in_three, transpose_in

_WRITERS: Mapping[str, Callable[[Op, int], Writer | None]] = {
    **dict.fromkeys(("Flatten", "Squeeze", "Unsqueeze"), lambda op, rank: reshaped(op)),
    "Gather": lambda op, rank: gather_in_three(op),
    "Split": lambda op, rank: split_in_three(op),
    "Transpose": transpose_in,
    **ranks.WRITERS,
    **merging.WRITERS,
}


_NAMED = 3  # ops that a note names, of all that stay


@dataclass(frozen=True)
class LimitRanks(Pass):
    """Rewrites ops that have more dimensions than the target runs.

    The limit is the target's ``most_dimensions``, that of its rule for the op, or what its table ``support``
    has for that.

    Of a Transpose, dimensions that stay side by side become one, and those of length 1 go; where more are
    left, they go to their places one after the other. Of a Split, a Gather and a Concat those before the axis
    and behind it become one, and so do those that an op on several tensors, a Slice, an Expand, a Tile or a
    sum treats alike, as in deformable attention. Ops that compute each number by itself, normalizations along
    rows and products of matrices get one dimension for the first ones, if the table of what the target runs
    (``support``) has them in fewer; so does a Softmax for those before its axis, and for those behind it; a
    MaxPool of volumes becomes two, and what is over all positions of a channel gets one dimension of these; a
    LeakyRelu or a PRelu becomes the larger one of its data and their product by the slope. Of the Reshapes
    around what moves numbers, as windows of pictures, heads of attention and shuffled pixels are written, one
    is left on each side. All lengths must be known, and none 0; a note names what stays. Nothing is done for
    targets without a limit.
    """

    name = "limit-ranks"
    stage = Stage.FLOAT
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        rewriter, left = Rewriter(model), []
        for graph in model.graph.walk() if target.models.most_dimensions else ():
            for op in [op for op in graph.ops() if not op.is_type("Reshape")]:
                rank = ranks.most_dimensions(target, op)
                if ranks.has_more(target, op) and not _write(rewriter, op, rank):
                    left.append(f"{op.label} ({ranks.too_many(target, op)}, at most {rank})")
            for op in [op for op in graph.ops() if op.is_type("Reshape")]:
                _join(rewriter, op, target.models.most_dimensions)
        if left:
            named = listed(left, _NAMED)
            context.notes.append(f"{target.name} does not run ops in so many dimensions: {named}")


def _write(rewriter: Rewriter, op: Op, rank: int) -> bool:
    """Writes an op in no more than ``rank`` dimensions; whether that is known."""
    has_one_result = not any(value is not None and value.is_read for value in _others(op))
    fits = op.is_type(*_WRITERS) and (has_one_result or op.is_type("Split"))
    write = _WRITERS[op.op_type](op, rank) if fits else None
    if write is None:
        reason = f"it has {ranks.rank_of(op)} dimensions, and the target runs it in no more than {rank}"
        rewriter.model.journal.note(Remark(SKIP, op, op.label, reason))
        return False
    with rewriter.action("fewer dimensions", op):
        _replace(rewriter, op, write(Builder(rewriter, op)))
    return True


def _replace(rewriter: Rewriter, op: Op, made: list[Value | None]) -> None:
    for old, new in zip(op.outputs, made, strict=False):  # others are not read
        if old is not None and new is not None:
            put_in_place(rewriter, old, new)
    rewriter.erase_op(op)


def _others(op: Op) -> tuple[Value | None, ...]:
    """What an op makes besides its first result."""
    return op.outputs[1:]


def _join(rewriter: Rewriter, op: Op, rank: int) -> None:
    """Lets a Reshape of what a Reshape made of too many dimensions read what that reads."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    source = data
    while source is not None and (producer := source.producer) is not None:
        if not producer.is_type("Reshape") or ranks.rank_of(producer) <= rank:
            break
        source = producer.inputs[0]
    if source is None or source is data or wanted is None or lengths_of(source) is None:
        return
    with rewriter.action("join", op):
        build = Builder(rewriter, op)
        made = build.op("Reshape", source, build.shape(wanted), shape=wanted)
        _replace(rewriter, op, [made])
        while data is not None and not data.is_read and (producer := data.producer) is not None:
            data = producer.inputs[0]
            rewriter.erase_op(producer)
