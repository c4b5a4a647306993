"""Ops of TensorRT's own domain that round to a grid, as the ops of ONNX that they are.

NVIDIA's Model Optimizer exports networks in float8 and with weights of 4 bits so, as ONNX had no such ops in
the opsets that it began with. What it has for grids that are found in every run, and for float4, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from .conversion import convert_in_place
from .inlining import inlined
from .protos import attributes_of, nested_graphs, walk_bodies, walk_graphs, walk_nodes

_DOMAIN = "trt"
_CODES = TensorProto.FLOAT8E4M3FN
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
        for node in _found(model):
            node.op_type, node.domain = _OPS[node.op_type], ""
            if node.op_type == "QuantizeLinear":
                node.attribute.append(helper.make_attribute("output_dtype", _CODES))
        for graph in [*walk_graphs(model.graph)][::-1]:  # inner ones first, whose results may be codes
            _declare_codes(graph)
        if all(node.domain != _DOMAIN for node in walk_nodes(model.graph.node)):
            imports = [entry for entry in model.opset_import if entry.domain != _DOMAIN]
            del model.opset_import[:]
            model.opset_import.extend(imports)

    of_opset = f" of opset {_OPSET}, as are all others now" if version < _OPSET else ""
    named = f"{first.op_type} '{first.name or first.output[0]}'"
    return f"{named} is an op of TensorRT, written as an op of ONNX{of_opset}", mend


def _declare_codes(graph: GraphProto) -> None:
    """Mends the types of codes of float8, which Model Optimizer declares as integers."""
    codes = {name for node in graph.node for name in _codes_made(node)}
    for info in [info for info in graph.value_info if info.name in codes]:
        graph.value_info.remove(info)
    for info in graph.output:
        if info.name in codes:
            info.type.tensor_type.elem_type = _CODES


def _codes_made(node: NodeProto) -> Iterator[str]:
    """The results of a node that are codes of float8, of a QuantizeLinear or of its bodies."""
    if node.op_type == "QuantizeLinear" and attributes_of(node).get("output_dtype") == _CODES:
        yield node.output[0]
    for body in nested_graphs(node):  # that of a Loop gives its condition first, which is no result
        for name, info in zip(node.output[::-1], body.output[::-1], strict=False):
            if info.type.tensor_type.elem_type == _CODES:
                yield name


def _found(model: ModelProto) -> Iterator[NodeProto]:
    nodes = (node for body in walk_bodies(model) for node in body.node)
    return (node for node in nodes if node.domain == _DOMAIN and node.op_type in _OPS)
