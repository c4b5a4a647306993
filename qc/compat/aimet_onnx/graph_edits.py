"""Editing the nodes of a model in place, by the names of ``aimet_onnx.utils``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from qc.ir.base.names import Names
from qc.ir.onnx.protos import walk_graphs
from qc.passes.lower.rounding.rewire import DOMAIN

from .errors import ArgumentError
from .utils import AnyModel, ParamUtils, get_node_attribute, proto_of


def remove_nodes_with_type(node_type: str, onnx_graph: GraphProto) -> None:
    """Removes the nodes of a type from a graph; what read their result reads their first input."""
    _take_out([node for node in onnx_graph.node if node.op_type == node_type], onnx_graph)


def remove_node(node: NodeProto, onnx_graph: GraphProto) -> None:
    """Removes a node from a graph, and the constants that only it read."""
    remove_nodes([node], onnx_graph)


def remove_nodes(nodes: Iterable[NodeProto], onnx_graph: GraphProto) -> None:
    """Removes nodes from a graph, and the constants that only they read."""
    gone = list(nodes)
    lost = {name for node in gone for name in node.input}
    _take_out(gone, onnx_graph)
    lost -= {name for node in onnx_graph.node for name in node.input}
    lost &= {tensor.name for tensor in onnx_graph.initializer}
    for field in (onnx_graph.initializer, onnx_graph.input):
        for one in [one for one in field if one.name in lost]:
            field.remove(one)


def _take_out(nodes: Sequence[NodeProto], graph: GraphProto) -> None:
    """Takes nodes out of a graph; outputs of the graph keep their names.

    Raises:
        UsageError: an output of the model would be what no node makes.
    """
    source = {node.output[0]: node.input[0] for node in nodes}
    for name in list(source):
        while source[name] in source:
            source[name] = source[source[name]]
    left = [node for node in graph.node if node not in nodes]
    made = {name for node in left for name in node.output}
    renamed = {source[info.name]: info.name for info in graph.output if info.name in source}
    for name in renamed:
        if name not in made:
            raise ArgumentError(f"output '{renamed[name]}' would be '{name}', which no node makes")
    for node in left:
        node.input[:] = [source.get(name, name) for name in node.input]
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for node in nodes:
        graph.node.remove(node)


def without_quantizers(model: ModelProto) -> ModelProto:
    """Takes the quantizers out of a simulation of qc, which is changed and returned."""
    for graph in walk_graphs(model.graph):
        remove_nodes([node for node in graph.node if node.domain == DOMAIN], graph)
    return model


def replace_node_with_op(node_type: str, new_type: str, onnx_graph: GraphProto) -> None:
    """Gives the nodes of a type another type."""
    for node in onnx_graph.node:
        if node.op_type == node_type:
            node.op_type = new_type


def replace_relu6_with_relu(model: AnyModel) -> None:
    """Makes each Clip between convolutions that begins at zero a Relu."""
    graph = proto_of(model).graph
    convolutions = ("Conv", "ConvTranspose")
    behind = {name for node in graph.node if node.op_type in convolutions for name in node.output}
    before = {node.input[0] for node in graph.node if node.op_type in convolutions}
    for node in graph.node:
        between = node.op_type == "Clip" and node.input[0] in behind and node.output[0] in before
        if between and check_if_clip_node_minimum_is_zero(node, model):
            node.op_type, node.name = "Relu", f"Relu_{node.name}"
            del node.input[1:]
            node.ClearField("attribute")


def check_if_clip_node_minimum_is_zero(node: NodeProto, model: AnyModel) -> bool:
    """Whether a Clip begins at zero."""
    lowest = ParamUtils.get_param(model, node, 1)
    if lowest is not None:
        return bool(numpy_helper.to_array(lowest) == 0)
    return get_node_attribute(node, "min") == 0.0


def transpose_tensor(t: TensorProto, axes: Sequence[int]) -> TensorProto:
    """The tensor with its axes in another order; axes of size 1 are put behind it if there are too few."""
    array = numpy_helper.to_array(t)
    array = array.reshape(array.shape + (1,) * (len(axes) - array.ndim))
    return numpy_helper.from_array(np.transpose(array, axes), name=t.name)


def duplicate_shared_initializers(graph: GraphProto) -> int:
    """Gives each node that reads an initializer which others read, too, a copy of it; counts the copies.

    Scales and zero points of QuantizeLinear and DequantizeLinear stay shared, as does what only Shape reads.
    """
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    taken = Names({*tensors, *(info.name for info in graph.input)})
    for name in (name for node in graph.node for name in node.output):
        taken.claim(name)
    seen: set[str] = set()
    count = 0
    for node in graph.node:
        for port, name in enumerate(node.input):
            if name not in tensors or node.op_type in ("QuantizeLinear", "DequantizeLinear", "Shape"):
                continue
            if name in seen:
                copy = graph.initializer.add()
                copy.CopyFrom(tensors[name])
                copy.name = node.input[port] = taken.free(f"{name}_copy")
                taken.claim(copy.name)
                count += 1
            seen.add(name)
    return count


def add_hook_to_get_activation(model: ModelProto, name: str) -> ValueInfoProto:
    """Makes a tensor an output of a model."""
    info = ValueInfoProto(name=name)
    model.graph.output.append(info)
    return info


def remove_activation_hooks(model: ModelProto, hooks: Sequence[ValueInfoProto] | ValueInfoProto) -> None:
    """Takes back what :func:`add_hook_to_get_activation` did."""
    for hook in [hooks] if isinstance(hooks, ValueInfoProto) else hooks:
        model.graph.output.remove(hook)


def save_model_with_external_weights(model: ModelProto, f: str, **kwargs: Any) -> None:
    """Saves a model with its weights in a file beside it; the model stays as it is."""
    onnx.save_model(model, f, save_as_external_data=True, **kwargs)
    onnx.load_external_data_for_model(model, str(Path(f).parent))
