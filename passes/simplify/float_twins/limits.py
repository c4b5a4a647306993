"""The activations that a grid does the work of."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import constant_data
from qc.ir.facts.result_range import result_range
from qc.ir.graph import Value
from qc.ir.rewriter import Rewriter

_INTEGERS = frozenset(
    {TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16}
    | {TensorProto.UINT4, TensorProto.INT4}
)
_RELU6 = 6.0


def limited(
    rewriter: Rewriter,
    value: Value,
    scale: Value,
    zero_point: Value | None,
    elem_type: int,
    codes: tuple[int, int] | None = None,
) -> Value:
    """A float tensor with the activation that quantizing it stands for: a Relu, a Clip to 6, or none.

    ONNX Runtime and others leave out a Relu whose result has a grid that begins at zero, and a Clip to
    [0, 6] whose result has one from 0 to 6, as codes do not reach beyond. The upper ends of other grids are
    what calibration saw, and no part of the network.

    Args:
        codes: the lowest and the highest one; those of the element type if they are left out.
    """
    scale_data = constant_data(scale)
    zero_data = constant_data(zero_point) if zero_point is not None else None
    if scale_data is None or scale_data.size != 1 or (zero_point is not None and zero_data is None):
        return value
    if zero_data is not None:  # what reads the result of an operator of ONNX Runtime has no known type
        elem_type = zero_data.data_type
    if elem_type not in _INTEGERS or value.producer is None:
        return value
    limits = ml_dtypes.iinfo(helper.tensor_dtype_to_np_dtype(elem_type))
    first, last = codes or (int(limits.min), int(limits.max))
    lowest = int(np.ravel(zero_data.numpy())[0]) if zero_data is not None else 0
    if lowest != first:
        return value
    highest = (last - lowest) * float(np.ravel(scale_data.numpy())[0])
    return activated(rewriter, value, highest, scale_data.numpy().dtype)


def activated(rewriter: Rewriter, value: Value, highest: float, dtype: np.dtype) -> Value:
    """The activation of a grid from 0 to ``highest``: a Relu, a Clip to 6, or none if nothing is below 0."""
    if result_range(value)[0] >= 0:
        return value
    if abs(highest - _RELU6) <= 1e-4 * _RELU6:
        return clipped(rewriter, value, np.array(0.0, dtype), np.array(_RELU6, dtype))
    result = rewriter.add_value(value.graph, f"{value.name}_activated", value.type)
    rewriter.add_op(value.graph, "Relu", [value], [result])
    return result


def clipped(rewriter: Rewriter, value: Value, lowest: np.ndarray | None, highest: np.ndarray | None) -> Value:
    """A tensor limited by a Clip; None is no limit."""
    graph, result = value.graph, rewriter.add_value(value.graph, f"{value.name}_activated", value.type)
    ends = [
        rewriter.add_constant(graph, end, f"{result.name}_{name}") if end is not None else None
        for name, end in (("min", lowest), ("max", highest))
    ]
    rewriter.add_op(graph, "Clip", [value, *ends] if highest is not None else [value, ends[0]], [result])
    return result
