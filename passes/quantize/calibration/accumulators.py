"""Sums of products that stay within the 32 bits of an accumulator."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from qc.ir.facts.op_traits import channel_axis, weight_port
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import PerChannel, PerTensor, Quantizer

from .bias import LARGEST_CODE, grid_of_data
from .multipliers import move_scale, weight_grid

_BYTE = 8  # bits of data that is summed in 32 bits; of wider data devices have wider sums, or floats
_REASON = "its scale enlarged, so that no sum of products leaves 32 bits"


def fit_accumulators(model: Model) -> None:
    """Enlarges scales of weights of which a sum of products by 8-bit data could leave 32 bits.

    Runtimes wrap around there: the largest sum becomes a negative one. It takes more than 33,000 products of
    the largest codes. One bit of the accumulator is left to the bias.
    """
    for op in (op for graph in model.graph.walk() for op in graph.ops()):
        weight = weight_grid(model, op)
        data = grid_of_data(model, op) if weight is not None else None
        factor = _excess(op, weight, data) if weight is not None and data is not None else None
        if weight is not None and factor is not None:
            move_scale(model, weight, partial(np.multiply, factor), _REASON)


def _is_byte(data: Quantizer) -> bool:
    is_one = data.encoding is not None and data.spec.granularity == PerTensor()
    return is_one and isinstance(data.spec.format, IntFormat) and data.spec.format.bits <= _BYTE


def _excess(op: Op, weight: Quantizer, data: Quantizer) -> np.ndarray | None:
    """By what the largest sum of each channel is too large, float64; None if none can be."""
    port = weight_port(op)
    value = op.inputs[port] if port is not None else None
    axis = channel_axis(op, value) if value is not None else None
    if value is None or value.original.const is None or axis is None or not _is_byte(data):
        return None
    shape = value.original.const.shape
    products, reach = math.prod(shape) // max(shape[axis], 1), _reach(data)
    if products * reach * _reach(weight) <= LARGEST_CODE:
        return None
    factor = np.maximum(_sums(value, weight, axis) * reach / LARGEST_CODE, 1.0)
    is_alone = weight.spec.granularity == PerChannel(axis)
    return (factor if is_alone else factor.max()) if factor.max() > 1 else None


def _reach(quantizer: Quantizer) -> int:
    """The largest distance of a code from that of zero."""
    assert quantizer.encoding is not None
    lowest, highest = quantizer.spec.code_range
    zero_point = np.asarray(quantizer.encoding.zero_point, np.int64)
    return int(max((highest - zero_point).max(), (zero_point - lowest).max()))


def _sums(value: Value, weight: Quantizer, axis: int) -> np.ndarray:
    """What distances of a weight's codes from that of zero add up to at most, by channel; float64."""
    const = value.original.const
    assert const is not None and weight.encoding is not None
    numbers = const.numpy()
    others = tuple(one for one in range(numbers.ndim) if one != axis)
    sums = np.abs(numbers).sum(axis=others, dtype=np.float64)
    half = 0.5 * (numbers.size / len(sums))  # what rounding adds
    return np.asarray(sums / weight.encoding.channel_scale(axis) + half)
