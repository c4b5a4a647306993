"""Lifting: an ONNX model becomes the IR, with every original proto kept so that lowering loses nothing.

onnx-graphsurgeon resolves which name means which tensor in which scope. It is given a skeleton (nodes,
names and nested graphs without types, data or plain attributes), because it cannot carry everything ONNX
can say; all of that is taken from the original protos, walked in step with the imported nodes.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto

from .errors import ModelError
from .graph import CycleError, Graph, Op, Value
from .model import Model
from .tensor_ref import TensorRef
from .types import infer_types

MAX_NESTING = 32
_LARGEST_DENSE = 1 << 30  # bytes: a few indices can claim any size


def load_model(path: str | Path) -> ModelProto:
    """Reads a model file without its external data.

    Raises:
        ModelError: the file is missing, is not an ONNX model, or is truncated.
    """
    path = Path(path)
    if not path.exists():
        raise ModelError(f"model '{path}' does not exist")
    if path.is_dir():
        raise ModelError(f"model '{path}' is a folder; name the .onnx file in it")
    if not path.is_file():
        raise ModelError(f"model '{path}' is not a regular file")
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except OSError as error:
        raise ModelError(f"model '{path}' cannot be read: {error.strerror or error}") from error
    except (DecodeError, ValueError) as error:
        raise ModelError(f"model '{path}' cannot be read: it is truncated or not an ONNX file") from error
    if not proto.opset_import or not proto.HasField("graph"):
        raise ModelError(f"model '{path}' is not an ONNX model: it has no graph or no opset")
    return proto


def lift(source: ModelProto | str | Path, base_dir: str | Path | None = None) -> Model:
    """Makes the IR of a model.

    Args:
        source: a model or the path of one. A ModelProto is not changed and must not be changed later.
        base_dir: the folder that external data of a ModelProto is relative to; a path implies its own.

    Raises:
        ModelError: the model cannot be read or its graph is inconsistent.
    """
    if isinstance(source, ModelProto):
        origin = source
        folder = Path(base_dir) if base_dir is not None else None
    else:
        origin = load_model(source)
        folder = Path(source).resolve().parent
    model = Model(origin, folder)
    _lift_graph(model.graph, origin.graph, _import(_skeleton(origin.graph, 0)), None)
    for function in origin.functions:
        key = (function.domain, function.name, function.overload)
        body = Graph(model, function.name)
        proto = GraphProto(
            name=function.name,
            node=function.node,
            input=[onnx.ValueInfoProto(name=name) for name in function.input],
            output=[onnx.ValueInfoProto(name=name) for name in function.output],
        )
        _lift_graph(body, proto, _import(_skeleton(proto, 0)), None)
        body.proto = function
        model.functions[key] = body
    try:
        infer_types(model)
    except CycleError as error:
        raise ModelError(f"the model is invalid: {error}") from error
    return model


@contextmanager
def without_collections() -> Iterator[None]:
    """A block that makes many objects and no garbage: looking for some would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _skeleton(proto: GraphProto, depth: int) -> GraphProto:
    """A graph with names and edges only: no types, no data, no attributes but nested graphs."""
    if depth > MAX_NESTING:
        raise ModelError(f"graph '{proto.name}' is nested more than {MAX_NESTING} deep")
    nodes = []
    for node in proto.node:
        bare = NodeProto(op_type=node.op_type, name=node.name, input=node.input, output=node.output)
        for key, nested in _nested_graphs(node):
            bare.attribute.append(
                AttributeProto(name=key, type=AttributeProto.GRAPH, g=_skeleton(nested, depth + 1))
            )
        nodes.append(bare)
    return GraphProto(
        name=proto.name,
        node=nodes,
        input=[onnx.ValueInfoProto(name=name) for name in _given_names(proto)],
        output=[onnx.ValueInfoProto(name=info.name) for info in proto.output],
    )


def _nested_graphs(node: NodeProto) -> Iterable[tuple[str, GraphProto]]:
    """The graph attributes of a node; the elements of a list of graphs get an index in their key."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for index, nested in enumerate(attribute.graphs):
                yield f"{attribute.name}:{index}", nested


def _given_names(proto: GraphProto) -> list[str]:
    """Inputs and initializers, each once; graphsurgeon would drop an input that is an initializer."""
    names = [info.name for info in proto.input]
    names += [tensor.name for tensor in proto.initializer]
    names += [sparse.values.name for sparse in proto.sparse_initializer]
    return list(dict.fromkeys(names))


def _import(skeleton: GraphProto) -> gs.Graph:
    model = ModelProto(ir_version=10, graph=skeleton)
    model.opset_import.add(domain="", version=21)
    try:
        return gs.import_onnx(model)
    except Exception as error:  # graphsurgeon raises bare exceptions for malformed graphs
        raise ModelError(f"graph '{skeleton.name}' is malformed: {error}") from error


def _lift_graph(graph: Graph, proto: GraphProto, imported: gs.Graph, outer: _Scope | None) -> None:
    """Fills ``graph`` from its proto and the graph that graphsurgeon made of its skeleton."""
    graph.proto = proto
    scope = _Scope(graph, outer)
    if len(imported.nodes) != len(proto.node):
        raise ModelError(f"graph '{proto.name}' was imported incompletely")
    given = {tensor.name: scope.local(tensor) for tensor in imported.inputs}
    graph.inputs.extend(given[info.name] for info in proto.input)
    for name, const in _constants(graph.model, proto):
        given[name].const = const
    for index, (node, bare) in enumerate(zip(proto.node, imported.nodes, strict=True)):
        _lift_op(scope, node, bare, index)
    graph.outputs.extend(scope.output(tensor) for tensor in imported.outputs)


def _constants(model: Model, proto: GraphProto) -> Iterable[tuple[str, TensorRef]]:
    for tensor in proto.initializer:
        yield tensor.name, TensorRef(tensor, model.base_dir)
    for sparse in proto.sparse_initializer:
        yield sparse.values.name, _densified(sparse, model.base_dir)


def _densified(sparse: SparseTensorProto, base_dir: Path | None) -> TensorRef:
    """The dense form of a sparse constant, whose indices count elements or are one row for each."""
    name, kind = sparse.values.name, sparse.values.data_type
    values = TensorRef(sparse.values, base_dir).numpy()
    indices = TensorRef(sparse.indices, base_dir).numpy()
    if math.prod(sparse.dims) * values.itemsize > _LARGEST_DENSE:
        raise ModelError(f"the sparse constant '{name}' is too large to be made dense: {list(sparse.dims)}")
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        places = np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)
        dense[places] = values
    except (ValueError, IndexError) as error:
        raise ModelError(f"the sparse constant '{name}' cannot be read: {error}") from error
    ref = TensorRef.from_array(dense, kind)
    ref.proto.name = name
    return ref


def _lift_op(scope: _Scope, node: NodeProto, bare: gs.Node, index: int) -> None:
    graph = scope.graph
    op = Op(graph, graph.model.new_id(), node.op_type, node.domain, node.name)
    op.proto, op.overload, op.position = node, node.overload, (index,)
    op.num_inputs, op.num_outputs = len(node.input), len(node.output)
    nested = dict(_nested_graphs(node))
    op.attributes = {
        a.name: a for a in node.attribute if a.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)
    }
    graph._add_node(op)
    if node.name:
        graph.model.claim_name(node.name)
    for port, name in enumerate(node.input):
        if name:
            graph._connect(scope.read(bare.inputs[port]), op, port)
    for port, name in enumerate(node.output):
        if name:
            graph._connect(op, scope.produced(bare.outputs[port]), port)
    for key, proto in nested.items():
        body = Graph(graph.model, proto.name, parent=op)
        op.subgraphs[key] = body
        _lift_graph(body, proto, bare.attrs[key], scope)
        for inner in body.values():
            if inner.captured is not None:
                graph._connect(inner.captured, op, ("capture", f"{key}/{inner.name}"))


class _Scope:
    """The values of one graph by the identity of the graphsurgeon tensor they came from."""

    def __init__(self, graph: Graph, outer: _Scope | None) -> None:
        self.graph = graph
        self._outer = outer
        self._by_tensor: dict[int, Value] = {}
        self._by_name: dict[str, Value] = {}

    def local(self, tensor: gs.Tensor) -> Value:
        """The value of this graph for a tensor, made on first sight."""
        found = self._by_tensor.get(id(tensor))
        if found is None:
            model = self.graph.model
            found = Value(self.graph, model.new_id(), tensor.name)
            model.claim_name(tensor.name)
            self.graph._add_node(found)
            self._by_tensor[id(tensor)] = self._by_name[tensor.name] = found
        return found

    def read(self, tensor: gs.Tensor) -> Value:
        """The value for a tensor that a node reads: local, or a stand-in for one of an enclosing graph."""
        if id(tensor) in self._by_tensor or self._outer is None:
            return self.local(tensor)
        captured = self._outer._visible(tensor)
        value = self.local(tensor)
        value.captured = captured
        return value

    def _visible(self, tensor: gs.Tensor) -> Value | None:
        """The value of this scope for a tensor of the enclosing graphs, captured from there if need be."""
        found = self._by_tensor.get(id(tensor))
        if found is None and self._outer is not None and self._outer._visible(tensor) is not None:
            return self.read(tensor)
        return found

    def produced(self, tensor: gs.Tensor) -> Value:
        """The value for a tensor that a node computes."""
        value = self.local(tensor)
        if self.graph.producer(value) is not None or value.const is not None or self.graph.is_input(value):
            raise ModelError(f"'{tensor.name}' is defined twice in graph '{self.graph.name}'")
        return value

    def output(self, tensor: gs.Tensor) -> Value:
        """The value for a graph output; one that nothing here computes may be of an enclosing graph."""
        value = self.local(tensor)
        defined = (
            self.graph.producer(value) is not None or value.const is not None or self.graph.is_input(value)
        )
        if not defined and self._outer is not None:
            value.captured = self._outer._named(tensor.name)
        return value

    def _named(self, name: str) -> Value | None:
        found = self._by_name.get(name)
        if found is None and self._outer is not None:
            outside = self._outer._named(name)
            if outside is not None:
                found = self._by_name[name] = Value(self.graph, self.graph.model.new_id(), name)
                self.graph._add_node(found)
                found.captured = outside
        return found
