"""Makes masks of attention small enough for the integers of a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qc.ir.facts.dataflow import holds_infinity, infinite_values, makes_masks, mask_parts
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Graph, Op, Use, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext


@dataclass(frozen=True)
class LimitMasks(Pass):
    """Limits constants of masks, such as -3.4e38 or -infinity, to what the integers of the target can hold.

    A constant of 2^24 or above, of either sign, becomes the ``mask_limit`` of the target if only a Softmax
    sees what Add, Sub, Sum or Where makes of it; a target without a limit keeps it. Softmax gives exactly 0
    to both as long as the scores of a row lie closer together than that limit less 104.

    A row that is masked as a whole may change. Where the mask is added, float numbers weigh it by its scores;
    once scores have grids, all of them saturate, and every place weighs the same, as before. Behind -infinity
    such a row was NaN, and no longer is. If an IsNaN looks for that to put another number there, every
    place weighs the same from now on, and IsNaN and Where go, which a note says; with ``hidden_rows=keep``,
    or where something else is made of the IsNaN, the constant stays. Behind a finite mask, as PyTorch's
    exporter by torch.export writes it, or behind none that is left, as where all places are seen, no row was
    NaN: IsNaN and Where go without a note.
    """

    name = "limit-masks"
    stage = Stage.FLOAT
    needs = frozenset({"target"})

    hidden_rows: Literal["even", "keep"] = option(
        "even",
        "what becomes of rows that -infinity hides as a whole and IsNaN looks for: all places weigh the "
        "same, or the mask is kept, and float",
    )

    def run(self, model: Model, context: PassContext) -> None:
        limit = context.required_target().models.mask_limit
        if not limit:
            return
        rewriter = Rewriter(model)
        limited: dict[tuple[Graph, Value], Value] = {}
        without_nan: dict[Op, bool] = {}  # whether the mask was infinite
        kept: set[Op] = set()
        scopes = scopes_of(model.graph)
        for op, port, constant in list(_masking_constants(scopes, mask_parts(model.graph))):
            infinite, looking = _is_infinite(constant.original), _looking_for_nan(scopes, op)
            choices = [_choice_of(one) for one in looking]
            chosen = [one for one in choices if one is not None]
            if infinite and looking and (self.hidden_rows == "keep" or None in choices):
                kept.update(chosen)
                reason = f"an IsNaN looks for rows that '{constant.original.name}' masks as a whole"
                model.journal.note(Remark(SKIP, op, op.label, reason))
                continue
            _limit(rewriter, op, port, constant, limit, limited)
            without_nan.update((one, infinite or without_nan.get(one, False)) for one in chosen)
        for choice in _needless_choices(scopes, infinite_values(model.graph)):
            without_nan.setdefault(choice, False)
        for choice in [one for one in without_nan if one not in kept]:
            with rewriter.action("no NaN behind a limited mask", choice):
                _drop_choice(rewriter, choice)
        changed = sum(infinite for choice, infinite in without_nan.items() if choice not in kept)
        if changed:
            context.notes.append(
                f"rows that a mask hides as a whole weigh all places the same ({changed} Softmax "
                f"ops), as {context.required_target().name} computes without infinity; "
                "limit-masks{hidden_rows=keep} keeps them, in float"
            )


def _limit(
    rewriter: Rewriter,
    op: Op,
    port: int,
    constant: Value,
    limit: float,
    limited: dict[tuple[Graph, Value], Value],
) -> None:
    """Lets an op read a constant within the limit, one for all ops in its graph."""
    read, graph = constant.original, op.graph
    assert read.const is not None
    with rewriter.action("limit mask", op, f"'{read.name}' is limited to {limit:g}"):
        if (graph, read) not in limited:
            data = read.const.numpy()
            data = np.clip(data, *np.asarray((-limit, limit), data.dtype))
            limited[graph, read] = rewriter.add_constant(graph, data, f"{read.name}_limited")
        rewriter.set_input(op, port, limited[graph, read])
        rewriter.drop_unread(constant)


def _masking_constants(scopes: Scopes, masks: Set[Value]) -> Iterator[tuple[Op, int, Value]]:
    """The uses of constants as large as infinity that only masks are made of."""
    for op in scopes.ops:
        for port, value in enumerate(op.inputs):
            if value is not None and holds_infinity(value.original) and makes_masks(Use(op, port), masks):
                yield op, port, value


def _is_infinite(value: Value) -> bool:
    return value.const is not None and math.inf in map(abs, value.const.extremes())


def _looking_for_nan(scopes: Scopes, op: Op) -> list[Op]:
    """The IsNaN ops that read a Softmax behind ``op``."""
    pending, known, found = [op], {op}, []
    for current in pending:
        for value in current.outputs:
            readers = [use.op for use in scopes.uses(value)] if value is not None else []
            if current.is_type("Softmax"):
                found += [reader for reader in readers if reader.is_type("IsNaN")]
                continue
            pending += [reader for reader in readers if reader not in known]
            known.update(readers)
    return found


def _needless_choices(scopes: Scopes, infinite: Set[Value]) -> Iterator[Op]:
    """The Where ops for rows of a Softmax that are NaN, where no infinity of a constant makes them so."""
    for op in scopes.ops:
        read = op.inputs[0] if op.is_type("IsNaN") else None
        softmax = read.producer if read is not None else None
        if softmax is None or not softmax.is_type("Softmax"):
            continue
        scores, choice = softmax.inputs[0], _choice_of(op)
        if choice is not None and scores is not None and scores.original not in infinite:
            yield choice


def _choice_of(looking: Op) -> Op | None:
    """The Where that puts something in the place of NaN, if that is all that an IsNaN is for."""
    use = looking.only_use
    if use is None or not use.op.is_type("Where") or use.port != 0:
        return None
    return use.op if use.op.inputs[2] is looking.inputs[0] else None


def _drop_choice(rewriter: Rewriter, choice: Op) -> None:
    """Lets all that read what a Where chooses read its last input."""
    (is_nan, instead, kept), (result, *_) = choice.inputs, choice.outputs
    assert is_nan is not None and kept is not None and result is not None
    graph, looking = choice.graph, is_nan.producer
    assert looking is not None
    if result.is_output and (kept.is_output or kept.producer is None):
        type = result.type  # the last input has a name to keep as well
        (kept,) = rewriter.add_op(graph, "Identity", [kept], [result.name]).outputs
        assert kept is not None
        rewriter.set_type(kept, type)
    rewriter.replace_uses(result, kept)
    rewriter.erase_op(choice)
    rewriter.erase_op(looking)
    if instead is not None:
        rewriter.drop_unread(instead)
