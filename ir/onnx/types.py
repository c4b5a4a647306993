"""Element types and shapes of values, from ONNX shape inference on a copy without the weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import onnx
from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto

from ..graph import Graph, Value
from ..value_type import UNKNOWN, ValueType
from .protos import subgraphs, without_weights
from .shape_inference import infer_shapes


class Types(NamedTuple):
    """What is known of the values of a graph.

    Attributes:
        known: the types by name.
        nested: the types in a subgraph, by the index of the node that holds it and its key there.
    """

    known: dict[str, ValueType]
    nested: dict[tuple[int, str], Types]


def inferred(origin: ModelProto) -> Types:
    """The types in the main graph of a model, as far as ONNX can tell."""
    return _read(infer_shapes(without_weights(origin)).graph)


def _read(proto: GraphProto) -> Types:
    nested = {
        (index, key): _read(graph) for index, node in enumerate(proto.node) for key, graph in subgraphs(node)
    }
    return Types(_types_by_name((proto.value_info, proto.output, proto.input)), nested)


def assign_types(graph: Graph, types: Types) -> None:
    """Fills ``Value.type`` in a graph and all that are nested in it; what is not known stays so."""
    for value in graph.values():
        if value.const is not None:
            value.type = ValueType(value.const.data_type, value.const.shape)
        elif value.captured is not None:
            value.type = value.captured.type
        else:
            value.type = types.known.get(value.name, UNKNOWN)
    for op in graph.ops():
        for key, nested in op.subgraphs.items():
            inner = types.nested.get((op.position[0], key))
            if inner is not None:
                assign_types(nested, inner)


def _types_by_name(fields: Iterable[Iterable[ValueInfoProto]]) -> dict[str, ValueType]:
    """The types by name. A model has few different ones: each is read once and is one object."""
    seen: dict[bytes, ValueType] = {}
    found = {}
    for info in (info for infos in fields for info in infos):
        key = info.type.SerializeToString()
        if key not in seen:
            seen[key] = type_of(info.type)
        found[info.name] = seen[key]
    return found


def type_of(proto: TypeProto) -> ValueType:
    """The type of a tensor; non-tensor types (sequences, maps, optionals) count as unknown."""
    if not proto.HasField("tensor_type"):
        return ValueType()
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    shape = tuple(dimension(dim) for dim in tensor.shape.dim)
    return ValueType(tensor.elem_type, shape)


def dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """The length of a dimension, or the name of a free one, or None.

    A ``?`` is no name: exporters write it for every dimension that they know nothing of.
    """
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return None if dim.dim_param in ("", "?") else str(dim.dim_param)


def declare(value: Value) -> ValueInfoProto:
    """A ValueInfoProto with the name and type of ``value``."""
    info = ValueInfoProto(name=value.name)
    if value.type.elem_type:
        set_tensor_type(info.type.tensor_type, value.type)
    return info


def set_tensor_type(tensor: TypeProto.Tensor, type: ValueType) -> None:
    """Sets the element type and shape of a tensor type."""
    tensor.elem_type = type.elem_type
    if type.shape is None:
        return
    tensor.shape.SetInParent()
    for size in type.shape:
        dim = tensor.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif isinstance(size, str):
            dim.dim_param = size
