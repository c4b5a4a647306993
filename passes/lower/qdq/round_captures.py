"""Rounds once more what carries a quantized tensor into a body, without which ONNX Runtime dies of a model.

ONNX Runtime adds pairs of QuantizeLinear and DequantizeLinear behind some ops that move what a
DequantizeLinear makes (its QDQPropagationTransformer). Where the body of an If, Loop or Scan captures the
result, it takes the capture for an input of that op, writes behind the end of the list of inputs, and the
process ends. It adds none where a pair stands already.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Graph, Op, Value, ValueType
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

# The ops of that optimizer, and those that others of ONNX Runtime remove or turn into one of them.
_PASSED = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_REPLACED = ("Dropout", "Expand", "Flatten", "Gather", "Identity", "Split")


def round_captures(model: Model, rewriter: Rewriter) -> None:
    """Puts a pair behind every op that moves what a DequantizeLinear makes to where a body captures it.

    That changes no number, as all are on the grid of that DequantizeLinear. The op then stands between two
    pairs, so that it moves codes.
    """
    for graph in list(model.graphs()):
        _round_captures_of(graph, rewriter)


def _round_captures_of(graph: Graph, rewriter: Rewriter) -> None:
    grids: dict[Value | None, Op] = {}
    for op in graph.ops():
        if is_qdq(op, "DequantizeLinear"):
            if _is_per_tensor(op):
                grids[graph.op_outputs(op)[0]] = op
            continue
        grid = grids.get(graph.op_inputs(op)[0]) if op.is_type(*_PASSED, *_REPLACED) else None
        for value in graph.op_outputs(op) if grid is not None else ():
            assert grid is not None
            if value is None or not value.is_float:
                continue
            if graph.capturing(value):
                value = _round(rewriter, value, grid)
            grids[value] = grid


def _is_per_tensor(op: Op) -> bool:
    """Whether a DequantizeLinear has one scale, and codes that a QuantizeLinear can make."""
    codes, scale = op.graph.op_inputs(op)[:2]
    data = op.graph.constant(scale)
    no_codes = (TensorProto.UNDEFINED, TensorProto.INT32)
    return codes is not None and codes.type.elem_type not in no_codes and data is not None and data.size == 1


def _round(rewriter: Rewriter, value: Value, grid: Op) -> Value:
    """``value`` rounded to the grid of a DequantizeLinear, which all its readers now read."""
    graph = value.graph
    source, scale, zero_point = (*graph.op_inputs(grid), None)[:3]
    assert source is not None
    kind = source.type.elem_type
    if zero_point is None:
        zero = TensorRef.from_array(np.zeros(()), kind)
        zero_point = rewriter.add_constant(graph, zero, f"{value.name}_zero_point")
    readers = set(graph.uses(value))
    name, shape = value.name, value.type.shape
    codes = rewriter.add_value(graph, f"{name}_QuantizeLinear_Output", ValueType(kind, shape))
    rounded = rewriter.add_value(graph, f"{name}_DequantizeLinear_Output", value.type)
    for op_type, given, made in (("QuantizeLinear", value, codes), ("DequantizeLinear", codes, rounded)):
        inputs = (given, scale, zero_point)
        rewriter.add_op(graph, op_type, inputs, [made], {}, grid.domain, f"{name}_{op_type}")
    rewriter.replace_uses(value, rounded, where=readers.__contains__, outputs=False)
    return rounded
