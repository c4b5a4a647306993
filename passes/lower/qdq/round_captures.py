"""Rounds once more what carries a quantized tensor into a body, without which ONNX Runtime dies of a model.

ONNX Runtime adds pairs of QuantizeLinear and DequantizeLinear behind some ops that move what a
DequantizeLinear makes (its QDQPropagationTransformer). Where the body of an If, Loop or Scan captures the
result, it takes the capture for an input of that op, writes behind the end of the list of inputs, and the
process ends. It adds none where a pair stands already.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import initializer
from qc.ir.facts.qdq import is_qdq
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import ValueType

# The ops of that optimizer, and those that others of ONNX Runtime remove or turn into one of them.
_PASSED = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_REPLACED = ("Dropout", "Expand", "Flatten", "Gather", "Identity", "Split")


def round_captures(model: Model, rewriter: Rewriter) -> None:
    """Puts a pair behind every op that moves what a DequantizeLinear makes to where a body captures it.

    That changes no number, as all are on the grid of that DequantizeLinear. The op then stands between two
    pairs, so that it moves codes. The DequantizeLinear may stand around the body of the op, as ONNX Runtime
    puts the branch of an If in place of it where the condition is constant.
    """
    grids: dict[Value, Op] = {}
    captures = Captures(rewriter)
    for op in model.ops():
        if is_qdq(op, "DequantizeLinear") and _is_per_tensor(op):
            grids.update((result, op) for result in op.outputs if result is not None)
        if not op.is_type(*_PASSED, *_REPLACED):
            continue
        moved = op.inputs[0]
        grid = grids.get(moved.original) if moved is not None else None
        for value in op.outputs if grid is not None else ():
            if value is None or grid is None or not value.is_float:
                continue
            if value.capturing:
                value = _round(rewriter, captures, value, grid)
            grids[value] = grid


def _is_per_tensor(op: Op) -> bool:
    """Whether a DequantizeLinear has one scale, and codes that a QuantizeLinear can make."""
    codes, scale = op.inputs[:2]
    data = initializer(scale)
    no_codes = (TensorProto.UNDEFINED, TensorProto.INT32)
    return codes is not None and codes.type.elem_type not in no_codes and data is not None and data.size == 1


def _round(rewriter: Rewriter, captures: Captures, value: Value, grid: Op) -> Value:
    """``value`` rounded to the grid of a DequantizeLinear, which all its readers now read."""
    graph = value.graph
    source, *given = (parameter for parameter in grid.inputs if parameter is not None)
    kind = source.type.elem_type
    parameters = [captures.into(graph, parameter.original) for parameter in given]
    if len(parameters) == 1:
        zero = TensorRef.from_array(np.zeros(()), kind)
        parameters.append(rewriter.add_constant(graph, zero, f"{value.name}_zero_point"))
    readers = set(value.uses)
    name, shape = value.name, value.type.shape
    codes = rewriter.add_value(graph, f"{name}_QuantizeLinear_Output", ValueType(kind, shape))
    rounded = rewriter.add_value(graph, f"{name}_DequantizeLinear_Output", value.type)
    for op_type, read, made in (("QuantizeLinear", value, codes), ("DequantizeLinear", codes, rounded)):
        rewriter.add_op(graph, op_type, (read, *parameters), [made], {}, grid.domain, f"{name}_{op_type}")
    rewriter.replace_uses(value, rounded, where=readers.__contains__, outputs=False)
    return rounded
