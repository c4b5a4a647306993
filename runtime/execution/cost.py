"""How much the ops of a model have to compute, from their shapes alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import onnx
from onnx import ModelProto

from qc.ir.onnx.protos import copy_fields

from ..protos.wiring import Node

Shapes = Mapping[str, tuple[int, ...]]


def tensor_shapes(model: ModelProto, inputs: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of the main graph, of those that ONNX can infer.

    Args:
        model: a model, best without its weights (see :func:`qc.runtime.protos.detach.detach_weights`).
        inputs: the shapes of inputs that have free dimensions, by name.
    """
    sized = ModelProto()
    copy_fields(model, sized)
    for value in sized.graph.input:
        if value.name in inputs:
            value.type.tensor_type.ClearField("shape")
            for length in inputs[value.name]:
                value.type.tensor_type.shape.dim.add(dim_value=length)
    del sized.graph.value_info[:]
    for node in sized.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):  # of whatever domain: they keep the shape
            node.op_type, node.domain = "Identity", ""
            del node.input[1:], node.attribute[:]
    try:
        sized = onnx.shape_inference.infer_shapes(sized, data_prop=True)
    except Exception:  # the C++ library's; shapes are an estimate's concern only
        return dict(inputs)
    known = {tensor.name: tuple(tensor.dims) for tensor in sized.graph.initializer}
    for value in (*sized.graph.input, *sized.graph.value_info, *sized.graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            known[value.name] = tuple(dim.dim_value for dim in dims)
    return known


def operations(node: Node, shapes: Shapes) -> int | None:
    """The multiplications with accumulation of an op with a weight; of any other, the elements it makes.

    None if a shape that it depends on is not known.
    """
    read = [shapes.get(name) for name in node.proto.input]
    made = shapes.get(node.proto.output[0])
    if node.op_type == "ConvTranspose":
        return prod(read[0]) * prod(read[1][1:]) if read[0] is not None and read[1] is not None else None
    if made is None:
        return None
    if node.op_type == "Conv":
        return prod(made) * prod(read[1][1:]) if read[1] is not None else None
    if node.op_type == "MatMul":
        return prod(made) * read[0][-1] if read[0] else None
    if node.op_type == "Gemm":
        transposed = node.attribute("transA")
        axis = 0 if transposed is not None and transposed.i else 1
        return prod(made) * read[0][axis] if read[0] is not None else None
    return prod(made)
