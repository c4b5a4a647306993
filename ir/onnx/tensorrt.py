"""Ops of TensorRT's own domain that round to a grid, as the ops of ONNX that they are.

NVIDIA's Model Optimizer exports networks in float8 and with weights of 4 bits so, as ONNX had no such ops in
the opsets that it began with. What it has for grids that are found in every run, and for float4, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import ModelProto, NodeProto, TensorProto, helper

from .conversion import convert_in_place
from .inlining import inlined
from .protos import walk_bodies, walk_graphs, walk_nodes

_DOMAIN = "trt"
_OPSET = 21  # the first one with blocks, and with the type of codes as an attribute
_OPS = {
    "DequantizeLinear": "DequantizeLinear",
    "TRT_FP8DequantizeLinear": "DequantizeLinear",
    "TRT_FP8QuantizeLinear": "QuantizeLinear",
}


def rounding_for_tensorrt(model: ModelProto) -> tuple[str, Callable[[], None]] | None:
    """Ops of TensorRT that round to a grid, and what writes them as ops of ONNX."""
    first = next(_found(model), None)
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if first is None or not version:
        return None

    def mend() -> None:
        if model.functions:
            model.CopyFrom(inlined(model))
        if version < _OPSET:
            convert_in_place(model, version, _OPSET, "ops of TensorRT")
        codes = set()
        for node in _found(model):
            node.op_type, node.domain = _OPS[node.op_type], ""
            if node.op_type == "QuantizeLinear":
                codes.add(node.output[0])
                node.attribute.append(helper.make_attribute("output_dtype", TensorProto.FLOAT8E4M3FN))
        for graph in walk_graphs(model.graph):  # Model Optimizer declares codes of float8 as integers
            for info in [info for info in graph.value_info if info.name in codes]:
                graph.value_info.remove(info)
        if all(node.domain != _DOMAIN for node in walk_nodes(model.graph.node)):
            imports = [entry for entry in model.opset_import if entry.domain != _DOMAIN]
            del model.opset_import[:]
            model.opset_import.extend(imports)

    of_opset = f" of opset {_OPSET}, as are all others now" if version < _OPSET else ""
    named = f"{first.op_type} '{first.name or first.output[0]}'"
    return f"{named} is an op of TensorRT, written as an op of ONNX{of_opset}", mend


def _found(model: ModelProto) -> Iterator[NodeProto]:
    nodes = (node for body in walk_bodies(model) for node in body.node)
    return (node for node in nodes if node.domain == _DOMAIN and node.op_type in _OPS)
