"""Telling of passes that start from grids, and run before there are any."""

from __future__ import annotations

from qc.ir.model import Model

from ..framework.context import PassContext


def is_too_early(model: Model, context: PassContext, name: str, kept: str) -> bool:
    """Whether quantizers are there and none has a grid yet, as in front of ``calibrate``; a note says so.

    Args:
        name: the pass that starts from grids.
        kept: what it leaves alone then, a sentence: ``ranges stay as they are``.
    """
    quantizers = model.quant.quantizers()
    if not quantizers or any(one.encoding is not None for one in quantizers):
        return False
    if not model.journal.stopped:  # else 'calibrate' ran, and was kept from acting
        context.notes.append(f"{kept}: pass '{name}' is to be run behind 'calibrate', which finds the grids")
    return True
