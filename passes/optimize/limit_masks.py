"""Makes masks of attention small enough for the integers of a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from qc.ir.facts.op_traits import traits
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Graph, Op, Use, Value
from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from ..quantize.placement.dataflow import holds_infinity, masked_scores


@dataclass(frozen=True)
class LimitMasks(Pass):
    """Limits constants of masks, such as -3.4e38 or -infinity, to what the integers of the target can hold.

    A constant of 2^24 or above, of either sign, becomes the ``mask_limit`` of the target if only a Softmax
    sees what Add, Sub, Sum or Where makes of it; a target without a limit keeps it. Softmax gives exactly 0
    to both as long as the scores of a row lie closer together than that limit less 104.

    A row that is masked as a whole may change. Where the mask is added, float numbers weigh it by its scores;
    once scores have grids, all of them saturate, and every place weighs the same, as before. Behind -infinity
    such a row was NaN, and no longer is: if an IsNaN looks for that, the constant stays.
    """

    name = "limit-masks"
    stage = Stage.FLOAT
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        limit = context.required_target().mask_limit
        if not limit:
            return
        rewriter = Rewriter(model)
        limited: dict[tuple[Graph, Value], Value] = {}
        scopes = scopes_of(model.graph)
        for op, port, constant in list(_masking_constants(scopes, masked_scores(model.graph))):
            read = constant.original
            assert read.const is not None
            if _is_infinite(read) and _nan_is_looked_for(scopes, op):
                reason = f"an IsNaN looks for rows that '{read.name}' masks as a whole"
                model.journal.note(Remark(SKIP, op, op.label, reason))
                continue
            with rewriter.action("limit mask", op, f"'{read.name}' is limited to {limit:g}"):
                if (op.graph, read) not in limited:
                    data = np.clip(read.const.numpy(), -limit, limit)
                    limited[op.graph, read] = rewriter.add_constant(op.graph, data, f"{read.name}_limited")
                rewriter.set_input(op, port, limited[op.graph, read])
                rewriter.drop_unread(constant)


def _masking_constants(scopes: Scopes, scores: Set[Value]) -> Iterator[tuple[Op, int, Value]]:
    """The uses of constants as large as infinity that only masks are made of."""
    masks = _masks(scopes, scores)
    for op in scopes.ops:
        for port, value in enumerate(op.graph.op_inputs(op)):
            if value is not None and holds_infinity(value.original) and _passes_on(Use(op, port), masks):
                yield op, port, value


def _masks(scopes: Scopes, scores: Set[Value]) -> Set[Value]:
    """Masked scores, and what becomes a part of them and of nothing else."""
    found = set(scores)
    for op in reversed(scopes.ops):
        for value in op.graph.op_outputs(op):
            if value is None or scopes.is_exposed(value) or scopes.onward(value):
                continue
            uses = list(scopes.uses(value))
            if uses and all(_passes_on(use, found) for use in uses):
                found.add(value)
    return found


def _passes_on(use: Use, masks: Set[Value]) -> bool:
    """Whether a large number that ``use`` reads only makes numbers of masks large."""
    found = traits(use.op)
    return use.op.graph.op_outputs(use.op)[0] in masks and (found.spreads or use.port in found.ordered)


def _is_infinite(value: Value) -> bool:
    return value.const is not None and math.inf in map(abs, value.const.extremes())


def _nan_is_looked_for(scopes: Scopes, op: Op) -> bool:
    """Whether an IsNaN reads a Softmax behind ``op``."""
    pending, known = [op], {op}
    for current in pending:
        for value in current.graph.op_outputs(current):
            readers = [use.op for use in scopes.uses(value)] if value is not None else []
            if current.is_type("Softmax"):
                if any(reader.is_type("IsNaN") for reader in readers):
                    return True
                continue
            pending += [reader for reader in readers if reader not in known]
            known.update(readers)
    return False
