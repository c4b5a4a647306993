"""Leaves in float what small numbers are added to that become zero in 16-bit floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qc.ir.errors import listed
from qc.ir.facts.op_traits import is_grid_preserving, is_trained
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import FloatFormat
from qc.ir.quant.spec import Quantizer

from ...framework.context import PassContext
from .bias import leave_float
from .overflow import is_narrow


def leave_vanishing(model: Model, context: PassContext) -> None:
    """Leaves small constants in float of which their format makes zero, such as 1e-10 in front of a Log.

    They keep what they are added to from zero, whose logarithm and reciprocal are infinite. So the other data
    and the result of ops that read them stay in float as well, with a note. Trained weights are left alone.
    """
    lost = {value: one for one in filter(is_narrow, model.quant.quantizers()) for value in _lost(model, one)}
    for value, quantizer in lost.items():
        format = quantizer.spec.format
        leave_float(model, model.quant.sites_on(value), f"{format} makes zero of it")
        for held in dict.fromkeys(_beside(value)):
            reason = f"is computed with '{value.name}', of which {format} makes zero"
            leave_float(model, model.quant.sites_on(held), reason)
    if lost:
        named = listed([f"'{value.name}'" for value in lost], 1)
        context.notes.append(
            f"{named} would become zero in 16-bit floats and stays in float32 with what is computed "
            "of it; a device that computes in float16 may need larger numbers there"
        )


def _lost(model: Model, quantizer: Quantizer) -> list[Value]:
    """The constants that a quantizer rounds to nothing but zeros, though they are not zero."""
    values = dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer))
    return [value for value in values if _vanishes(value, quantizer.spec.format)]


def _vanishes(value: Value, format: object) -> bool:
    if value.const is None or not value.const.is_small or is_trained(value):
        return False
    assert isinstance(format, FloatFormat)
    numbers = value.const.numpy()
    with np.errstate(over="ignore", under="ignore"):
        return bool(numbers.any()) and not numbers.astype(format.dtype).any()


def _beside(value: Value) -> Iterator[Value]:
    """The other inputs and the results of ops that read a constant, as far as these are only moved."""
    for op, _ in value.uses:
        if op.subgraphs:
            continue
        yield from (one for one in op.inputs if one is not None and one.const is None)
        results = [one for one in op.outputs if one is not None]
        for result in results:
            yield result
            readers = [reader for reader, _ in result.uses if is_grid_preserving(reader)]
            results += [one for reader in readers for one in reader.outputs if one is not None]
