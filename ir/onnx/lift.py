"""Lifting: an ONNX model becomes the IR, with every original proto kept so that lowering loses nothing.

onnx-graphsurgeon resolves which name means which tensor in which scope. It is given one bare node after the
other (names only), because it cannot carry everything ONNX can say; all of that is taken from the original
protos. What it makes of a node takes more memory than the IR does, and goes as soon as the node is lifted.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, ValueInfoProto
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter

from ..base.garbage import free_models, without_collections
from ..errors import ModelError
from ..graph import Graph, Op, Value, capture_port
from ..model import Model
from ..port_graph import CycleError
from ..tensor_ref import TensorRef
from .load import load_model, model_folder
from .protos import GRAPH_TYPES, Body, subgraphs
from .types import assign_types, inferred

MAX_NESTING = 32
_BYTES = 4  # of most numbers
_LARGEST_DENSE = 1 << 30  # bytes: a few indices can claim any size


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
        folder = model_folder(source)
    free_models(sum(math.prod(tensor.dims) for tensor in origin.graph.initializer) * _BYTES)
    types = inferred(origin)  # first, so that what it takes for a moment is free when the IR is made
    model = Model(origin, folder)
    with without_collections():
        _lift_graph(model.graph, origin.graph, None)
        for function in origin.functions:
            key = (function.domain, function.name, function.overload)
            model.functions[key] = _lift_function(model, function)
        try:
            assign_types(model.graph, types)
        except CycleError as error:
            raise ModelError(f"the model is invalid: {error}") from error
    return model


def _lift_function(model: Model, function: FunctionProto) -> Graph:
    body = Graph(model, function.name)
    _lift_graph(body, function, None)
    return body


def _lift_graph(graph: Graph, proto: Body, outer: _Scope | None) -> None:
    """Fills ``graph`` from its proto."""
    graph.proto = proto
    scope = _Scope(graph, outer)
    constants = dict(_constants(graph.model.base_dir, proto))
    # graphsurgeon would drop an input that is an initializer
    given = {name: scope.local(scope.declare(name)) for name in (*_names(proto.input), *constants)}
    graph.inputs = [given[name] for name in _names(proto.input)]
    for name, const in constants.items():
        given[name].const = const
    outputs = [scope.declare(name) for name in _names(proto.output)]
    for index, node in enumerate(proto.node):
        _lift_op(scope, node, index)
    graph.outputs = [scope.output(tensor) for tensor in outputs]
    scope.forget_tensors()


def _names(declared: Iterable[ValueInfoProto | str]) -> list[str]:
    return [one if isinstance(one, str) else one.name for one in declared]


def _constants(base_dir: Path | None, proto: Body) -> Iterable[tuple[str, TensorRef]]:
    if isinstance(proto, GraphProto):
        for tensor in proto.initializer:
            yield tensor.name, TensorRef(tensor, base_dir)
        for sparse in proto.sparse_initializer:
            yield sparse.values.name, densified(sparse, base_dir)


def densified(sparse: SparseTensorProto, base_dir: Path | None) -> TensorRef:
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
    except (ValueError, IndexError, TypeError) as error:
        raise ModelError(f"the sparse constant '{name}' cannot be read: {error}") from error
    ref = TensorRef.from_array(dense, kind)
    ref.proto.name = name
    return ref


def _lift_op(scope: _Scope, node: NodeProto, index: int) -> None:
    graph = scope.graph
    op = Op(graph, graph.model.new_id(), node.op_type, node.domain, node.name)
    op.proto, op.overload, op.position = node, node.overload, (index,)
    op.num_inputs, op.num_outputs = len(node.input), len(node.output)
    graph._add_node(op)
    if node.name:
        graph.model.claim_name(node.name)
    imported = scope.resolve(node)
    for port, tensor in enumerate(imported.inputs):
        if tensor.name:
            graph._connect(scope.read(tensor), op, port)
    for port, tensor in enumerate(imported.outputs):
        if tensor.name:
            graph._connect(op, scope.produced(tensor), port)
    _forget_node(imported)
    if node.attribute:
        _lift_attributes(scope, op, node)


def _lift_attributes(scope: _Scope, op: Op, node: NodeProto) -> None:
    graphs = dict(subgraphs(node))
    op.attributes = {a.name: a for a in node.attribute if a.type not in GRAPH_TYPES}
    op.subgraphs = {key: Graph(op.graph.model, proto.name, parent=op) for key, proto in graphs.items()}
    for key, body in op.subgraphs.items():
        _lift_graph(body, graphs[key], scope)
        for inner in body.values():
            if inner.captured is not None:
                op.graph._connect(inner.captured, op, capture_port(inner))


def _forget_node(node: gs.Node) -> None:
    """Takes the references apart that a node and its tensors have to each other, which frees its memory."""
    for tensor in (*node.inputs, *node.outputs):
        list.clear(tensor.inputs)  # the method of the lists themselves searches the node in each other list
        list.clear(tensor.outputs)
    vars(node).clear()


class _Scope:
    """The values of one graph by the identity of the graphsurgeon tensor they came from.

    Raises:
        ModelError: the graph is nested too deep.
    """

    def __init__(self, graph: Graph, outer: _Scope | None) -> None:
        self.graph = graph
        self._outer = outer
        self._depth: int = outer._depth + 1 if outer is not None else 0
        if self._depth > MAX_NESTING:
            raise ModelError(f"graph '{graph.name}' is nested more than {MAX_NESTING} deep")
        self._tensors: dict[str, gs.Variable] = {}
        self._around: ChainMap[str, gs.Variable] = outer._in_reach if outer is not None else ChainMap()
        self._in_reach: ChainMap[str, gs.Variable] = ChainMap(self._tensors, *self._around.maps)
        self._by_tensor: dict[int, Value] = {}
        self._by_name: dict[str, Value] = {}

    def declare(self, name: str) -> gs.Variable:
        """The tensor for an input, a constant or an output of this graph, whatever the name means outside."""
        if name not in self._tensors:
            self._tensors[name] = gs.Variable(name)
        return self._tensors[name]

    def resolve(self, node: NodeProto) -> gs.Node:
        """The node with the tensors that it reads and makes; what it leaves out is one without a name."""
        bare = NodeProto(input=node.input, output=node.output)
        return OnnxImporter.import_node(bare, self._around, self._tensors, None, [])

    def forget_tensors(self) -> None:
        """Takes the references apart that tensors have to themselves; no more nodes can be resolved."""
        for tensor in self._tensors.values():
            vars(tensor).clear()

    def local(self, tensor: gs.Variable) -> Value:
        """The value of this graph for a tensor, made on first sight."""
        found = self._by_tensor.get(id(tensor))
        if found is None:
            model = self.graph.model
            found = Value(self.graph, model.new_id(), tensor.name)
            model.claim_name(tensor.name)
            self.graph._add_node(found)
            self._by_tensor[id(tensor)] = self._by_name[tensor.name] = found
        return found

    def read(self, tensor: gs.Variable) -> Value:
        """The value for a tensor that a node reads: local, or one that captures it from around."""
        if id(tensor) in self._by_tensor or self._outer is None:
            return self.local(tensor)
        captured = self._outer._visible(tensor)
        value = self.local(tensor)
        value.captured = captured
        return value

    def _visible(self, tensor: gs.Variable) -> Value | None:
        """The value of this scope for a tensor of the enclosing graphs, captured from there if need be."""
        found = self._by_tensor.get(id(tensor))
        if found is None and self._outer is not None and self._outer._visible(tensor) is not None:
            return self.read(tensor)
        return found

    def produced(self, tensor: gs.Variable) -> Value:
        """The value for a tensor that a node computes."""
        value = self.local(tensor)
        if value.producer is not None or value.const is not None or value.is_input:
            raise ModelError(f"'{tensor.name}' is defined twice in graph '{self.graph.name}'")
        return value

    def output(self, tensor: gs.Variable) -> Value:
        """The value for a graph output; one that nothing here computes may be of an enclosing graph."""
        value = self.local(tensor)
        defined = value.producer is not None or value.const is not None or value.is_input
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
