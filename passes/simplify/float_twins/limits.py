"""The activations that a grid does the work of."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.graph import Value
from qc.ir.rewriter import Rewriter

_INTEGERS = frozenset(
    {TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16}
    | {TensorProto.UINT4, TensorProto.INT4}
)
_NOT_NEGATIVE = ("Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Sqrt", "ReduceL2", "Softplus")
_AVERAGES = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "Sum")
_RELU6 = 6.0


def limited(
    rewriter: Rewriter, value: Value, scale: Value, zero_point: Value | None, elem_type: int
) -> Value:
    """A float tensor with the activation that quantizing it stands for: a Relu, a Clip to 6, or none.

    ONNX Runtime and others leave out a Relu whose result has a grid that begins at zero, and a Clip to
    [0, 6] whose result has one from 0 to 6, as codes do not reach beyond. The upper ends of other grids are
    what calibration saw, and no part of the network.
    """
    if elem_type not in _INTEGERS or value.graph.producer(value) is None or _is_not_negative(value):
        return value
    scale_data = constant_data(scale)
    zero_data = constant_data(zero_point) if zero_point is not None else None
    if scale_data is None or scale_data.size != 1 or (zero_point is not None and zero_data is None):
        return value
    limits = ml_dtypes.iinfo(helper.tensor_dtype_to_np_dtype(elem_type))
    lowest = int(np.ravel(zero_data.numpy())[0]) if zero_data is not None else 0
    if lowest != int(limits.min):
        return value
    highest = (int(limits.max) - lowest) * float(np.ravel(scale_data.numpy())[0])
    graph = value.graph
    result = rewriter.add_value(graph, f"{value.name}_activated", value.type)
    if abs(highest - _RELU6) > 1e-4 * _RELU6:
        rewriter.add_op(graph, "Relu", [value], [result])
        return result
    ends = [
        rewriter.add_constant(graph, np.array(end, scale_data.numpy().dtype), f"{result.name}_{name}")
        for name, end in (("min", 0.0), ("max", _RELU6))
    ]
    rewriter.add_op(graph, "Clip", [value, *ends], [result])
    return result


def _is_not_negative(value: Value, depth: int = 16) -> bool:
    """Whether no number of a tensor can be negative, as far as the ops before it tell."""
    value = value.original
    op = value.graph.producer(value)
    if op is None or not depth:
        return False
    if op.is_type(*_NOT_NEGATIVE):
        return True
    inputs = op.graph.op_inputs(op)
    if op.is_type("Clip"):
        least = constant_data(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
        return least is not None and bool((least.numpy() >= 0).all())
    if op.is_type(*_AVERAGES):
        read = inputs if op.is_type("Add", "Mul", "Concat", "Sum") else inputs[:1]
    else:
        read = inputs[:1] if is_grid_preserving(op) else ()
    return bool(read) and all(one is not None and _is_not_negative(one, depth - 1) for one in read)
