"""Leaves in float what becomes infinite in 16-bit floats."""

from __future__ import annotations

import numpy as np

from qc.ir.errors import DataError
from qc.ir.executor import Observation
from qc.ir.facts.scopes import name_apart
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.formats import FloatFormat, holds
from qc.ir.quant.spec import Quantizer
from qc.ir.rewriter import Rewriter

from ...framework.context import PassContext
from .bias import leave_float

_SAMPLES = 32
_RANGE = Observation("range")


def leave_overflowing(model: Model, context: PassContext, user: str) -> None:
    """Leaves tensors in float whose numbers in samples are beyond their format, with a note.

    That is float16, which ends at 65504. Without data nothing is known, and nothing is done.
    """
    values = {
        value: quantizer
        for quantizer in model.quant.quantizers()
        if _is_narrow(quantizer)
        for value in dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer))
        if value.const is None
    }
    if not values or context.data is None or context.samples_given == 0 or not context.can_read_again:
        return
    try:
        ranges = _ranges(model, context, list(values), user)
    except DataError as error:  # as where float computes with infinities, too
        context.notes.append(f"whether all numbers stay within float16 is not known: {error}")
        return
    beyond = {
        value: quantizer
        for value, quantizer in values.items()
        if value in ranges and not holds(quantizer.spec.format, *ranges[value])
    }
    for value, quantizer in beyond.items():
        reason = (
            f"reaches {max(map(abs, ranges[value])):.4g} in samples, which {quantizer.spec.format} has not"
        )
        leave_float(model, model.quant.sites_of(quantizer), reason)
    if beyond:
        first, more = next(iter(beyond)), len(beyond) - 1
        also = f" and {more} more" if more else ""
        context.notes.append(
            f"'{first.name}'{also} would become infinite in 16-bit floats and stays in float32; a device "
            "that computes in float16 may need ops there to be scaled down"
        )


def _is_narrow(quantizer: Quantizer) -> bool:
    format = quantizer.spec.format
    is_unscaled = isinstance(format, FloatFormat) and not format.scaled
    return is_unscaled and format.highest < float(np.finfo(np.float32).max) / 2


def _ranges(
    model: Model, context: PassContext, values: list[Value], user: str
) -> dict[Value, tuple[float, float]]:
    """The least and the largest number of each tensor, where samples reach it."""
    feeds = context.samples(_SAMPLES, user)
    rewriter = Rewriter(model)
    with rewriter.trial():
        name_apart(rewriter)
        sources = {value.name: value for value in values}
        found = context.required_executor().observe(
            lower(model), dict.fromkeys(sources, (_RANGE,)), feeds, base_dir=model.base_dir
        )
    return {
        sources[name]: (float(seen.minimum), float(seen.maximum))
        for (name, _), seen in found.items()
        if seen.count
    }
