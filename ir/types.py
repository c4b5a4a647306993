"""Element types and shapes of values, from ONNX shape inference on a copy without the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto

from .graph import Graph, Value, ValueType
from .model import Model
from .tensor_ref import TensorRef


def infer_types(model: Model) -> None:
    """Fills ``Value.type`` in all graphs as far as ONNX can tell; unknown stays unknown."""
    proto = _without_weights(model.origin)
    with contextlib.suppress(Exception):  # best effort: declared types remain, the runtime can tell the rest
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    _assign(model.graph, proto.graph)


def _without_weights(origin: ModelProto) -> ModelProto:
    """A copy whose large constants have a type and a shape but no data."""
    light = ModelProto()
    for field in ("ir_version", "opset_import", "functions"):
        _copy_field(origin, light, field)
    _copy_light_graph(origin.graph, light.graph)
    return light


def _copy_light_graph(source: GraphProto, target: GraphProto) -> None:
    for field in ("name", "input", "output", "value_info", "sparse_initializer"):
        _copy_field(source, target, field)
    for tensor in source.initializer:
        _copy_light_tensor(tensor, target.initializer.add())
    for node in source.node:
        if node.op_type != "Constant":
            target.node.add().CopyFrom(node)
            continue
        bare = target.node.add(op_type="Constant", output=node.output)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                copy = bare.attribute.add(name=attribute.name, type=attribute.type)
                _copy_light_tensor(attribute.t, copy.t)
            else:
                bare.attribute.add().CopyFrom(attribute)


def _copy_light_tensor(source: TensorProto, target: TensorProto) -> None:
    if TensorRef(source).is_small and source.data_location != TensorProto.EXTERNAL:
        target.CopyFrom(source)
        return
    target.name, target.data_type = source.name, source.data_type
    target.dims.extend(source.dims)


def _copy_field(
    source: onnx.ModelProto | GraphProto, target: onnx.ModelProto | GraphProto, field: str
) -> None:
    value = getattr(source, field)
    if isinstance(value, (int, str)):
        setattr(target, field, value)
    else:
        getattr(target, field).extend(value)


def _assign(graph: Graph, proto: GraphProto) -> None:
    known = _types_by_name((proto.value_info, proto.output, proto.input))
    for value in graph.values():
        if value.const is not None:
            value.type = ValueType(value.const.data_type, value.const.shape)
        elif value.captured is not None:
            value.type = value.captured.type
        else:
            value.type = known.get(value.name, ValueType())
    for op, node in zip(graph.ops(), _in_graph_order(graph, proto), strict=True):
        for attribute in node.attribute:
            if attribute.name in op.subgraphs:
                _assign(op.subgraphs[attribute.name], attribute.g)


def _in_graph_order(graph: Graph, proto: GraphProto) -> list[onnx.NodeProto]:
    return [proto.node[op.position[0]] for op in graph.ops()]


def _types_by_name(fields: Iterable[Iterable[ValueInfoProto]]) -> dict[str, ValueType]:
    return {info.name: type_of(info.type) for infos in fields for info in infos}


def type_of(proto: TypeProto) -> ValueType:
    """The type of a tensor; non-tensor types (sequences, maps, optionals) count as unknown."""
    if not proto.HasField("tensor_type"):
        return ValueType()
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    shape = tuple(_dimension(dim) for dim in tensor.shape.dim)
    return ValueType(tensor.elem_type, shape)


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or None


def declare(value: Value) -> ValueInfoProto:
    """A ValueInfoProto with the name and type of ``value``."""
    info = ValueInfoProto(name=value.name)
    if value.type.elem_type:
        tensor = info.type.tensor_type
        tensor.elem_type = value.type.elem_type
        if value.type.shape is not None:
            tensor.shape.SetInParent()
            for size in value.type.shape:
                dim = tensor.shape.dim.add()
                if isinstance(size, int):
                    dim.dim_value = size
                elif isinstance(size, str):
                    dim.dim_param = size
    return info
