"""What passes need to begin, grids and data; where that is missing they do nothing, and a note says so."""

from __future__ import annotations

from qc.ir.model import Model

from ..framework.context import GIVE_DATA, PassContext


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


def lacks_data(context: PassContext, name: str, kept: str, use: str) -> bool:
    """Whether there are no samples, as with statistics that were recorded; a note says so.

    Args:
        name: the pass that reads data.
        kept: what it leaves alone then, a sentence: ``ranges stay as they are``.
        use: what it needs data for: ``to choose them by``.
    """
    if context.data is not None and context.samples_given != 0:
        return False
    context.notes.append(f"{kept}: pass '{name}' needs data {use}{GIVE_DATA}")
    return True
