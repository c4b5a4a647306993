"""Scales of weights with which a device rescales sums of products exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qc.ir.facts.op_traits import weight_port
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import PerBlock, PerTensor, Quantizer

from ...framework.target import Target
from .bias import grid_of_data

_FUSED = ("Relu", "Clip")
_LITTLE = 8  # bits of results that the error of a multiplier is far below a step of


def fit_multipliers(model: Model, target: Target) -> None:
    """Moves scales of weights so that multipliers have few bits, where the target keeps no more of them.

    A device multiplies a sum of products by the scale of the input times that of the weight by that of the
    result. Of 11 bits that is up to 2^-12 off, and so is the code of zero, in which the device counts it in:
    nothing to 8 bits, but up to 26 steps of 16, alike for a whole channel. Small numbers beside large ones
    are lost in it. The scale of the weight may be moved as little instead, which costs nothing. A weight of
    several products is fitted to the first.
    """
    fitted: set[Quantizer] = set()
    for op in (op for graph in model.graph.walk() for op in graph.ops()) if target.multiplier_bits else ():
        weight = _weight_of(model, op)
        if weight is None or weight in fitted:
            continue
        data, result = grid_of_data(model, op), _grid_of_result(model, op)
        if result is not None and _is_wide(result) and data is not None and data.encoding is not None:
            fitted.add(weight)
            _fit(model, weight, data, result, target.multiplier_bits)


def _fit(model: Model, weight: Quantizer, data: Quantizer, result: Quantizer, bits: int) -> None:
    assert weight.encoding is not None and data.encoding is not None and result.encoding is not None
    ratio = data.encoding.scale.astype(np.float64) / result.encoding.scale
    fraction, exponent = np.frexp(weight.encoding.scale * ratio)
    multiplier = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    scale = np.asarray(multiplier / ratio, weight.encoding.scale.dtype)
    if not np.array_equal(scale, weight.encoding.scale):
        reason = f"its scale moved a little, so that a multiplier of {bits} bits is exact"
        model.quant.calibrate(weight, replace(weight.encoding, scale=scale), reason)


def _weight_of(model: Model, op: Op) -> Quantizer | None:
    """The quantizer of a constant weight whose scales may be moved."""
    port = weight_port(op)
    value = op.graph.op_inputs(op)[port] if port is not None else None
    if value is None or port is None or value.original.const is None:
        return None
    held = model.quant.of_use(value, op, port)
    if held is None or held.is_fixed or held.encoding is None or isinstance(held.spec.granularity, PerBlock):
        return None
    return held if isinstance(held.spec.format, IntFormat) else None


def _grid_of_result(model: Model, op: Op) -> Quantizer | None:
    """The grid that sums are rounded to, which may be that behind an activation that runs as one with it."""
    result = op.graph.op_outputs(op)[0]
    if result is None:
        return None
    uses = op.graph.uses(result)
    if len(uses) == 1 and uses[0].op.is_type(*_FUSED) and not op.graph.is_output(result):
        made = uses[0].op.graph.op_outputs(uses[0].op)[0]
        behind = model.quant.of_value(made) if made is not None else None
        if behind is not None and behind.encoding is not None and _starts_at_zero(behind):
            return behind
    return model.quant.of_value(result)


def _starts_at_zero(quantizer: Quantizer) -> bool:
    assert quantizer.encoding is not None
    return bool(np.all(quantizer.encoding.zero_point == quantizer.spec.code_range[0]))


def _is_wide(result: Quantizer) -> bool:
    """Whether a result has codes of more bits than an inexact multiplier leaves right."""
    if result.encoding is None or result.spec.granularity != PerTensor():
        return False
    return isinstance(result.spec.format, IntFormat) and result.spec.format.bits > _LITTLE
