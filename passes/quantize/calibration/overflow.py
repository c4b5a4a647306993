"""Leaves in float what becomes infinite in 16-bit floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qc.ir.errors import listed
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.formats import FloatFormat, holds
from qc.ir.quant.spec import Quantizer

from ...framework.context import PassContext
from .bias import leave_float

_SAMPLES = 32


def leave_overflowing(model: Model, context: PassContext, user: str) -> None:
    """Leaves tensors of the main graph in float that samples show to be beyond their format, with a note.

    That is float16, which ends at 65504. Without data nothing is known, and nothing is done.

    Raises:
        UsageError, DataError, ModelError: as for :meth:`qc.ir.executor.Executor.run`.
    """
    quantizers = filter(is_narrow, model.quant.quantizers())
    narrow = [(one, value) for one in quantizers for value in _data(model, one)]
    if not narrow or context.data is None:
        return
    if context.samples_given == 0 or not context.can_read_again:
        why = "there are no samples" if context.samples_given == 0 else "the data can be read only once"
        context.notes.append(f"whether all numbers stay within float16 is not known: {why}")
        return
    largest = _largest(model, context, list(dict.fromkeys(value for _, value in narrow)), user)
    beyond = [(one, value) for one, value in narrow if not holds(one.spec.format, 0.0, largest[value])]
    for one, value in beyond:
        reason = f"reaches {largest[value]:.4g} in samples, which {one.spec.format} has not"
        leave_float(model, model.quant.sites_of(one), reason)
    named = list(dict.fromkeys(f"'{value.name}'" for _, value in beyond))
    if named:
        context.notes.append(
            f"{listed(named, 1)} would become infinite in 16-bit floats and stays in float32; a device that "
            "computes in float16 may need ops there to be scaled down"
        )


def is_narrow(quantizer: Quantizer) -> bool:
    """Whether its format has fewer exponents than float32: large numbers become infinite, small ones zero."""
    format = quantizer.spec.format
    is_unscaled = isinstance(format, FloatFormat) and not format.scaled
    return is_unscaled and format.highest < float(np.finfo(np.float32).max) / 2


def _data(model: Model, quantizer: Quantizer) -> list[Value]:
    """The tensors of the main graph that a quantizer rounds, but for constants."""
    values = dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer))
    return [value for value in values if value.const is None and value.graph is model.graph]


def _largest(model: Model, context: PassContext, values: Sequence[Value], user: str) -> dict[Value, float]:
    """The largest finite number of each tensor in samples, with either sign."""
    largest = dict.fromkeys(values, 0.0)
    feeds = context.samples(_SAMPLES, user)
    names = [value.name for value in values]
    runs = context.required_executor().run(lower(model), feeds, names, base_dir=model.base_dir)
    for found in context.track(runs, "looking for overflows", len(feeds)):
        for value in values:
            sizes = np.abs(found[value.name])
            largest[value] = max(largest[value], float(sizes.max(initial=0.0, where=np.isfinite(sizes))))
    return largest
