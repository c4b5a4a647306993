"""Scales of weights with which a device rescales sums of products as it should."""

from __future__ import annotations

from collections.abc import Callable
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
    """Moves scales of weights so that a device multiplies sums of products as it should.

    It multiplies a sum by the scale of the input times that of the weight by that of the result. Of few bits
    (``multiplier_bits``; 11 are up to 2^-12 off) that is inexact, and so is the code of zero, in which the
    device counts it in: nothing to 8 bits, but up to 26 steps of 16, alike for a whole channel. Small numbers
    beside large ones are lost in it. The scale of the weight may be moved as little instead, which costs
    nothing. A very small one (below ``least_multiplier``), as of a channel whose weights are all zero, makes
    wrong codes of biases; a scale that is larger costs nothing either, where products are that far below a
    step. A weight of several products is fitted to the first.
    """
    if not (target.grids.multiplier_bits or target.grids.least_multiplier):
        return
    fitted: set[Quantizer] = set()
    for op in (op for graph in model.graph.walk() for op in graph.ops()):
        weight = weight_grid(model, op)
        if weight is None or weight in fitted:
            continue
        data, result = grid_of_data(model, op), _grid_of_result(model, op)
        if result is not None and _is_integer(result) and data is not None and data.encoding is not None:
            fitted.add(weight)
            _fit(model, weight, data, result, target)


def _fit(model: Model, weight: Quantizer, data: Quantizer, result: Quantizer, target: Target) -> None:
    assert data.encoding is not None and result.encoding is not None
    ratio = data.encoding.scale.astype(np.float64) / result.encoding.scale
    least = target.grids.least_multiplier / ratio
    move_scale(
        model, weight, lambda scale: np.maximum(scale, least), "its scale is as small as the device takes it"
    )
    bits = target.grids.multiplier_bits
    if bits and _is_wide(result):
        reason = f"its scale moved a little, so that a multiplier of {bits} bits is exact"
        move_scale(model, weight, lambda scale: _rounded(scale * ratio, bits) / ratio, reason)


def move_scale(
    model: Model, weight: Quantizer, moved: Callable[[np.ndarray], np.ndarray], reason: str
) -> None:
    """Gives a weight other scales, if they are others."""
    assert weight.encoding is not None
    scale = weight.encoding.scale
    wanted = np.asarray(moved(scale), scale.dtype)
    if not np.array_equal(wanted, scale):
        model.quant.calibrate(weight, replace(weight.encoding, scale=wanted), reason)


def _rounded(multiplier: np.ndarray, bits: int) -> np.ndarray:
    """The nearest numbers whose mantissas have so many bits."""
    fraction, exponent = np.frexp(multiplier)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))


def weight_grid(model: Model, op: Op) -> Quantizer | None:
    """The quantizer of a constant weight whose scales may be moved."""
    port = weight_port(op)
    value = op.inputs[port] if port is not None else None
    if value is None or port is None or value.original.const is None:
        return None
    held = model.quant.of_use(value, op, port)
    if held is None or held.is_fixed or held.encoding is None or isinstance(held.spec.granularity, PerBlock):
        return None
    return held if isinstance(held.spec.format, IntFormat) else None


def _grid_of_result(model: Model, op: Op) -> Quantizer | None:
    """The grid that sums are rounded to, which may be that behind an activation that runs as one with it."""
    result = op.outputs[0]
    if result is None:
        return None
    use = result.only_use
    if use is not None and use.op.is_type(*_FUSED):
        made = use.op.outputs[0]
        behind = model.quant.of_value(made) if made is not None else None
        if behind is not None and behind.encoding is not None and _starts_at_zero(behind):
            return behind
    return model.quant.of_value(result)


def _starts_at_zero(quantizer: Quantizer) -> bool:
    if not isinstance(quantizer.spec.format, IntFormat) or quantizer.encoding is None:
        return False
    return bool(np.all(quantizer.encoding.zero_point == quantizer.spec.code_range[0]))


def _is_integer(result: Quantizer) -> bool:
    """Whether results have codes of one scale."""
    if result.encoding is None or result.spec.granularity != PerTensor():
        return False
    return isinstance(result.spec.format, IntFormat)


def _is_wide(result: Quantizer) -> bool:
    """Whether a result has codes of more bits than an inexact multiplier leaves right."""
    return isinstance(result.spec.format, IntFormat) and result.spec.format.bits > _LITTLE
