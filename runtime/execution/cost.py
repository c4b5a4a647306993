"""How much the ops of a model multiply, from their shapes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import onnx
from onnx import GraphProto, ModelProto, numpy_helper

from qc.ir.facts import products
from qc.ir.facts.products import is_product, multiplications, trips
from qc.ir.onnx.protos import attributes_of, copy_fields, nested_graphs

from ..protos.wiring import Node, all_nodes

Shapes = Mapping[str, tuple[int, ...]]

# Ops whose result has the shape that another op makes of their first inputs, and how many these are.
_SHAPED_LIKE = {
    "QuantizeLinear": ("Identity", 1),
    "DequantizeLinear": ("Identity", 1),
    "DynamicQuantizeLSTM": ("LSTM", 8),
    "DynamicQuantizeMatMul": ("MatMul", 2),
    "MatMulIntegerToFloat": ("MatMul", 2),
}


def tensor_shapes(model: ModelProto, inputs: Shapes) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of all graphs, of those that ONNX can infer.

    A name that stands for tensors of different shapes, in bodies beside each other, is left out.

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
    for node in (node.proto for node in all_nodes(sized.graph)):
        if node.op_type in _SHAPED_LIKE:  # of whatever domain; ONNX knows no shapes of other domains
            node.op_type, read = _SHAPED_LIKE[node.op_type]
            node.domain = ""
            del node.input[read:]
            if node.op_type == "Identity":
                del node.attribute[:]
    try:
        sized = onnx.shape_inference.infer_shapes(sized, data_prop=True)
    except Exception:  # the C++ library's; shapes are an estimate's concern only
        return dict(inputs)
    known: dict[str, tuple[int, ...]] = {}
    ambiguous: set[str] = set()
    for name, shape in _declared(sized.graph):
        if known.setdefault(name, shape) != shape:
            ambiguous.add(name)
    return {name: shape for name, shape in known.items() if name not in ambiguous}


def _declared(graph: GraphProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of known shapes of a graph and of all bodies in it."""
    for tensor in graph.initializer:
        yield tensor.name, tuple(tensor.dims)
    for value in (*graph.input, *graph.value_info, *graph.output):
        type = value.type.tensor_type
        if type.HasField("shape") and all(dim.HasField("dim_value") for dim in type.shape.dim):
            yield value.name, tuple(dim.dim_value for dim in type.shape.dim)
    for body in (body for node in graph.node for body in nested_graphs(node)):
        yield from _declared(body)


def multiplied_by(node: Node, shapes: Shapes, estimates: bool = False) -> int | None:
    """The multiplications with accumulation of an op that sums products; of any other 0.

    Those of an op in a body count for each iteration, if their number is known from shapes or a constant, and
    those of both branches of an If.

    Args:
        estimates: whether each number of its weights counts once where a shape is not known.

    Returns:
        None if a shape that it depends on is not known.
    """
    proto = node.proto
    if not is_product(proto.op_type, proto.domain):
        return 0
    read = [shapes.get(name) for name in proto.input]
    made = shapes.get(proto.output[0])
    given = products.Shapes(read, made, attributes_of(proto).get)
    count = multiplications(proto.op_type, proto.domain, given)
    if count is None and estimates:
        count = sum(map(prod, _weights(node)))
    return count * _iterations(node, shapes) if count is not None else None


def _weights(node: Node) -> Iterator[tuple[int, ...]]:
    """The shapes of the weights that an op reads, in floats or as codes."""
    for port in range(len(node.proto.input)):
        behind = node.dequantizer(port)
        tensor = node.constant(port) if behind is None else behind.constant(0)
        if tensor is not None and len(tensor.dims) > 1:
            yield tuple(tensor.dims)


def _iterations(node: Node, shapes: Shapes) -> int:
    """How often the body that an op stands in is run; 1 for each loop that ends when its data says so."""
    owner = node.graph.owner
    if owner is None:
        return 1
    limit = owner.constant(0) if owner.op_type == "Loop" else None
    count = int(numpy_helper.to_array(limit).item()) if limit is not None else None
    axis = attributes_of(owner.proto).get("scan_input_axes", [0])[-1]
    scanned = shapes.get(owner.proto.input[-1]) if owner.op_type == "Scan" else None
    return _iterations(owner, shapes) * trips(owner.op_type, count, scanned, axis)
