"""Walking through ONNX protos: every graph, node and tensor of a model, wherever it is nested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeAlias

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from ..facts.quantized_form import form_of_op
from ..tensor_ref import TensorRef

Body: TypeAlias = GraphProto | FunctionProto

GRAPH_TYPES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_TENSOR_TYPES = (
    AttributeProto.TENSOR,
    AttributeProto.TENSORS,
    AttributeProto.SPARSE_TENSOR,
    AttributeProto.SPARSE_TENSORS,
)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node by name, texts as str, without those that refer to one of a function."""
    given = (attribute for attribute in node.attribute if not attribute.ref_attr_name)
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in given}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def nested_graphs(node: NodeProto) -> list[GraphProto]:
    """The graphs among the attributes of a node, whatever type the attributes claim to have."""
    return [
        graph
        for attribute in node.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)
    ]


def subgraphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """The attributes of type graph as the IR names them: the elements of a list get an index in their key."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for index, nested in enumerate(attribute.graphs):
                yield f"{attribute.name}:{index}", nested


def walk_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs nested in it, each before those inside it."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            pending.extend(nested_graphs(node))


def walk_bodies(model: ModelProto) -> Iterator[Body]:
    """The main graph, the functions, the graphs for training, and all that are nested in them."""
    yield from walk_graphs(model.graph)
    for function in model.functions:
        yield function
        for node in function.node:
            for nested in nested_graphs(node):
                yield from walk_graphs(nested)
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            yield from walk_graphs(graph)


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and all nodes in their bodies, each before those inside it."""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(inner for graph in nested_graphs(node)[::-1] for inner in graph.node[::-1])


def holds_quantizers(model: ModelProto) -> bool:
    """Whether a model has ops that round or compute with codes."""
    nodes = (node for graph in walk_graphs(model.graph) for node in graph.node)
    return any(form_of_op(node.domain, node.op_type) is not None for node in nodes)


def reads(node: NodeProto) -> list[str]:
    """The names that a node reads, those that its bodies read from around it included, each once."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in nested_graphs(node):
        names.update(dict.fromkeys(captures(graph)))
    return list(names)


def names_read(graph: GraphProto) -> frozenset[str]:
    """The tensors of a graph that its nodes or their bodies read, and its outputs."""
    read = (name for node in graph.node for name in reads(node))
    return frozenset((*read, *(output.name for output in graph.output)))


def captures(graph: GraphProto) -> Iterator[str]:
    """The names that a body reads and does not define."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (info.name for info in graph.output if info.name not in own)


def model_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model: initializers and attributes, dense ones and both parts of sparse ones."""
    for body in walk_bodies(model):
        if isinstance(body, GraphProto):
            yield from body.initializer
            for sparse in body.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for attribute in (attribute for node in body.node for attribute in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for sparse in attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def copy_fields(source: Message, target: Message, leave_out: Collection[str] = ()) -> None:
    """Copies a message into an empty one, except the fields named, which may be large and are not touched."""
    if len(UnknownFieldSet(source)):  # type: ignore[no-untyped-call]
        target.CopyFrom(source)  # those of a later version of ONNX can be copied in no other way
        for name in leave_out:
            target.ClearField(name)
        return
    for field, value in source.ListFields():
        if field.name not in leave_out:
            _copy_field(target, field.name, value)


def _copy_field(target: Message, name: str, value: Any) -> None:
    if isinstance(value, Message):
        getattr(target, name).CopyFrom(value)
    elif isinstance(value, (str, bytes, int, float)):
        setattr(target, name, value)
    else:
        getattr(target, name).extend(value)


def without_weights(model: ModelProto) -> ModelProto:
    """A copy whose large tensors, wherever they are, have a type and a shape but no data."""
    light = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    _copy_light(model.graph, light.graph)
    for function in model.functions:
        _copy_light(function, light.functions.add())
    return light


def without_initializers(
    model: ModelProto, leaves_out: Callable[[TensorProto], bool]
) -> tuple[ModelProto, dict[str, TensorProto]]:
    """A copy in which chosen initializers have no data, and these by name, of which none is copied.

    In the copy they keep type and shape, and claim to lie in a file that nobody reads.
    """
    light = ModelProto()
    copy_fields(model, light, leave_out=("graph",))
    copy_fields(model.graph, light.graph, leave_out=("initializer",))
    left_out: dict[str, TensorProto] = {}
    for tensor in model.graph.initializer:
        if not leaves_out(tensor):
            light.graph.initializer.append(tensor)
            continue
        left_out[tensor.name] = tensor
        stub = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="in memory")
    return light, left_out


# The fields that lead to tensors.
_TO_TENSORS = frozenset(
    {"node", "attribute", "initializer", "sparse_initializer", "values", "indices"}
    | {"t", "tensors", "sparse_tensor", "sparse_tensors", "g", "graphs"}
)


def _copy_light(source: Message, target: Message) -> None:
    if isinstance(source, TensorProto):
        _copy_light_tensor(source, target)
        return
    if isinstance(source, NodeProto) and not any(map(_leads_to_tensors, source.attribute)):
        target.CopyFrom(source)  # nearly all are such, and this is the quickest way
        return
    for field, value in source.ListFields():
        if field.message_type is None or field.name not in _TO_TENSORS:
            _copy_field(target, field.name, value)
        elif isinstance(value, Message):
            _copy_light(value, getattr(target, field.name))
        else:
            for element in value:
                _copy_light(element, getattr(target, field.name).add())


def _leads_to_tensors(attribute: AttributeProto) -> bool:
    return attribute.type in _TENSOR_TYPES or attribute.type in GRAPH_TYPES


def _copy_light_tensor(source: TensorProto, target: TensorProto) -> None:
    if TensorRef(source).is_small and source.data_location != TensorProto.EXTERNAL:
        target.CopyFrom(source)
        return
    target.name, target.data_type = source.name, source.data_type
    target.dims.extend(source.dims)
