"""Lowering: the IR becomes an ONNX model again; what no pass touched comes out bit for bit as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    ValueInfoProto,
)

from ..facts.constants import FREE_INITIALIZERS
from ..graph import Graph, Op, Value
from ..model import Model, check_lifted
from .protos import GRAPH_TYPES, copy_fields
from .stored_types import fits, in_stored_types
from .types import declare, type_of


def lower(model: Model, *, as_declared: bool = True) -> ModelProto:
    """The ONNX model that the main graph and the functions stand for; quantizers are not part of it.

    A model that was mended when it was read, and that nothing has changed since, comes out as it was given.
    External data stays external and relative to ``model.base_dir``; see :func:`qc.ir.onnx.save.save_model`.

    Args:
        as_declared: give interface and constants the types that the model declares and stores them in,
            with Cast ops beside them; else those that the graph computes in.

    Raises:
        UsageError: ``model`` is none of the IR.
    """
    check_lifted(model)
    with in_stored_types(model) if as_declared else nullcontext():
        return _lower(model)


def _lower(model: Model) -> ModelProto:
    proto = ModelProto()
    origin = model.origin
    if model.given is not None and not model.epochs.any:
        proto.CopyFrom(model.given)
        return proto
    copy_fields(origin, proto, leave_out=("graph", "functions", "opset_import"))
    proto.opset_import.extend(opset_entries(model))
    _lower_graph(model.graph, proto.graph)
    for body in model.functions.values():
        _lower_function(body, proto.functions.add())
    if proto.ir_version < FREE_INITIALIZERS and _has_new_constant(model):
        free_initializers(proto, origin)
    return proto


def opset_entries(model: Model) -> list[OperatorSetIdProto]:
    """The imported operator sets: those of the original model in their order, then the new ones."""
    left = dict(sorted(model.opset_imports.items()))
    found = []
    for origin in model.origin.opset_import:
        domain = "" if origin.domain == "ai.onnx" else origin.domain
        entry = OperatorSetIdProto()
        entry.CopyFrom(origin)
        entry.version = model.opset_imports[domain]
        left.pop(domain, None)
        found.append(entry)
    return found + [OperatorSetIdProto(domain=domain, version=version) for domain, version in left.items()]


def _has_new_constant(model: Model) -> bool:
    return any(_constant_names(graph) - _original_constant_names(graph) for graph in model.graphs())


def _constant_names(graph: Graph) -> set[str]:
    return {value.name for value in graph.values() if value.const is not None}


def _original_constant_names(graph: Graph) -> set[str]:
    return (
        {tensor.name for tensor in graph.proto.initializer} if isinstance(graph.proto, GraphProto) else set()
    )


def free_initializers(proto: ModelProto, origin: ModelProto) -> None:
    """Moves to the first version in which initializers need not be inputs.

    There an input with an initializer is a default that may be overridden, which before it could not be. So
    the inputs of the original initializers go: they would keep runtimes from treating them as constants.
    """
    proto.ir_version = FREE_INITIALIZERS
    fixed = {tensor.name for tensor in origin.graph.initializer}
    kept = [info for info in proto.graph.input if info.name not in fixed]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)


def serialize(proto: ModelProto) -> bytes:
    """Deterministic bytes of a model."""
    return proto.SerializeToString(deterministic=True)


_REBUILT = frozenset({"node", "initializer", "sparse_initializer", "input", "output", "value_info"})


def _lower_graph(graph: Graph, proto: GraphProto) -> None:
    """Fills an empty graph; ``CopyFrom`` copies what may be large once, ``extend`` several times."""
    origin = graph.proto if isinstance(graph.proto, GraphProto) else GraphProto(name=graph.name)
    copy_fields(origin, proto, leave_out=_REBUILT)
    for op in graph.ops():
        _lower_op(op, proto.node.add())
    constants = ordered_constants(graph, origin)
    for value in (*constants.kept, *constants.new):
        if value.const is not None:
            proto.initializer.add().CopyFrom(value.const.renamed(value.name))
    proto.sparse_initializer.extend(sparse for sparse, _ in constants.sparse)
    outputs = [value for value in graph.outputs if value is not None]
    fixed = _has_fixed_shapes(graph, origin)
    for infos, values, known in (
        (proto.input, graph.inputs, origin.input),
        (proto.output, outputs, origin.output),
    ):
        found = zip(declared(values, known), values, strict=True)
        infos.extend(info if _stays(info, value, fixed) else declare(value) for info, value in found)
    kept = kept_declarations(graph, origin)
    proto.value_info.extend([*kept, *_new_declarations(graph, kept, fixed)])


def _new_declarations(graph: Graph, known: Iterable[ValueInfoProto], fixed: bool) -> Iterator[ValueInfoProto]:
    """The declarations of what ops of other domains make, where passes alone know it.

    Nothing tells what an op makes that a pass put into another domain. Of a model whose inputs were
    ``fixed``, ops that were there already are told of as well: runtimes do not infer all of their shapes,
    and devices take no op behind one without. Of new ops these are scalars: ONNX Runtime shows a custom
    op a scalar and a tensor of unknown rank alike.
    """
    names = {info.name for info in known}
    for op in graph.ops():
        is_new, is_moved = op.proto is None, op.proto is not None and op.proto.domain != op.domain
        for value in op.outputs if op.domain and (is_new or is_moved or fixed) else ():
            if value is None or value.is_output or value.name in names:
                continue
            if value.type.shape == () or (not is_new and value.type.shape is not None):
                yield declare(value)


def kept_declarations(graph: Graph, origin: GraphProto) -> list[ValueInfoProto]:
    """The declarations within a graph, without those of values that it had so and has no more."""
    gone = {info.name for info in origin.value_info}
    if gone:
        declarations = {info.name: info for info in origin.value_info}
        values = (value for value in graph.values() if value.name in declarations)
        fixed = _has_fixed_shapes(graph, origin)
        gone -= {value.name for value in values if _stays(declarations[value.name], value, fixed)}
    if gone:
        gone &= _defined(origin)
    return [info for info in origin.value_info if info.name not in gone]


def _stays(info: ValueInfoProto, value: Value, fixed: bool) -> bool:
    """Whether a declaration still holds for a value.

    One does not that names another length than a pass found, as where data keeps its order of axes; if inputs
    were ``fixed``, nor one that leaves free what follows of them.
    """
    if not fits(info, value):
        return False
    named, shape = type_of(info.type).shape, value.type.shape
    if named is None or shape is None:
        return True
    if len(named) != len(shape):
        return False
    return all(
        told == size or not isinstance(size, int) or not (fixed or isinstance(told, int))
        for told, size in zip(named, shape, strict=True)
    )


def _has_fixed_shapes(graph: Graph, origin: GraphProto) -> bool:
    """Whether an input of the main graph has a length where the model declares a free dimension."""
    declared = {info.name: type_of(info.type).shape for info in origin.input} if graph.parent is None else {}
    return any(declared.get(value.name, value.type.shape) != value.type.shape for value in graph.inputs)


def _defined(graph: GraphProto) -> set[str]:
    """The names that the graph gives to something; a declaration of any other name is left as it is."""
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    return names | {tensor.name for tensor in graph.initializer}


class Constants(NamedTuple):
    """The constants of a graph.

    Attributes:
        kept: initializers of the original graph, in its order.
        sparse: sparse initializers of the original graph, with the values that hold their dense form.
        new: the others.
    """

    kept: list[Value]
    sparse: list[tuple[SparseTensorProto, Value]]
    new: list[Value]


def ordered_constants(graph: Graph, origin: GraphProto) -> Constants:
    """The constants of a graph in the order in which they are lowered."""
    left = {value.name: value for value in graph.values() if value.const is not None}
    kept = [left.pop(tensor.name) for tensor in origin.initializer if tensor.name in left]
    sparse = [
        (item, left.pop(item.values.name)) for item in origin.sparse_initializer if item.values.name in left
    ]
    return Constants(kept, sparse, list(left.values()))


def declared(values: Iterable[Value], origin: Iterable[ValueInfoProto]) -> list[ValueInfoProto]:
    """The declarations of inputs or outputs: as the model had them, made from the type for new ones."""
    known = {info.name: info for info in origin}
    return [known.get(value.name) or declare(value) for value in values]


def _lower_op(op: Op, node: NodeProto) -> None:
    """Fills an empty node; a body is written where it belongs, since it may be large and nested deep."""
    if op.proto is not None:
        copy_fields(op.proto, node, leave_out=("input", "output", "attribute"))
        if op.domain != ("" if node.domain == "ai.onnx" else node.domain):
            node.domain = op.domain
    else:
        node.name = op.name
        if op.domain:
            node.domain = op.domain
    node.op_type = op.op_type
    node.input.extend(value.name if value is not None else "" for value in op.inputs)
    node.output.extend(value.name if value is not None else "" for value in op.outputs)
    for attribute in ordered_attributes(op):
        if attribute.type in GRAPH_TYPES and attribute.name not in op.attributes:
            _lower_subgraphs(op, attribute, node.attribute.add())
        else:
            node.attribute.add().CopyFrom(attribute)


def ordered_attributes(op: Op) -> list[AttributeProto]:
    """Attributes in the order of the model, then the new ones; the contents of graphs are out of date."""
    left = dict(op.attributes)
    found = []
    for attribute in op.proto.attribute if op.proto is not None else _graph_attributes(op.subgraphs):
        if attribute.type in GRAPH_TYPES:
            found.append(attribute)
        elif attribute.name in left:
            found.append(left.pop(attribute.name))
    return found + list(left.values())


def _graph_attributes(keys: Iterable[str]) -> list[AttributeProto]:
    """The attributes that hold the bodies of an op that was not in the model."""
    found: dict[str, AttributeProto] = {}
    for key in keys:
        name, _, index = key.rpartition(":")
        if name and index.isdigit():
            found.setdefault(name, AttributeProto(name=name, type=AttributeProto.GRAPHS)).graphs.add()
        else:
            found[key] = AttributeProto(name=key, type=AttributeProto.GRAPH)
    return list(found.values())


def _lower_subgraphs(op: Op, origin: AttributeProto, attribute: AttributeProto) -> None:
    copy_fields(origin, attribute, leave_out=("g", "graphs"))
    if origin.type == AttributeProto.GRAPH:
        _lower_graph(op.subgraphs[origin.name], attribute.g)
    else:
        for index in range(len(origin.graphs)):
            _lower_graph(op.subgraphs[f"{origin.name}:{index}"], attribute.graphs.add())


def _lower_function(body: Graph, proto: FunctionProto) -> None:
    assert isinstance(body.proto, FunctionProto)
    copy_fields(body.proto, proto, leave_out=("node",))
    for op in body.ops():
        _lower_op(op, proto.node.add())


def lower_ops(graph: Graph, ops: Iterable[Op], outputs: Iterable[Value]) -> ModelProto:
    """A model of some ops of a graph, with the initializers they read.

    Args:
        ops: in topological order; everything they read must come from each other or from initializers, be it
            of a graph around theirs.
        outputs: values that the ops make.
    """
    model = graph.model
    proto = ModelProto(ir_version=max(model.origin.ir_version, 4))
    for domain, version in sorted(model.opset_imports.items()):
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = graph.name or "part"
    read: dict[str, Value] = {}
    for op in ops:
        _lower_op(op, proto.graph.node.add())
        for value in (*op.inputs, *op.captures):
            if value is not None and value.original.const is not None:
                read[value.name] = value.original
    proto.graph.initializer.extend(v.const.renamed(v.name) for v in read.values() if v.const is not None)
    proto.graph.output.extend(declare(value) for value in outputs)
    return proto
