"""Cuts a model down to what some of its tensors need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from qc.ir.errors import UsageError, nearest

from .detach import copy_fields


def expose_tensors(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A model whose outputs are the named tensors of the main graph, cut down to what they need.

    The outputs have no type; ONNX Runtime infers it.

    Raises:
        UsageError: the main graph has no such tensor.
    """
    known = set(tensor_names(model.graph))
    for name in names:
        if name not in known:
            raise UsageError(
                f"the main graph has no tensor '{name}'{nearest(name, sorted(known))}; "
                "tensors inside a branch or loop body cannot be outputs"
            )
    result = needed_part(model, names)
    for name in dict.fromkeys(names):
        result.graph.output.add(name=name)
    return result


def needed_part(model: ModelProto, names: Iterable[str]) -> ModelProto:
    """A copy of ``model`` without outputs, and without what the named tensors do not need.

    Args:
        names: tensors of any graph. Of a tensor inside a body, the node that the body belongs to is needed.

    Raises:
        UsageError: no graph has such a tensor, or several graphs have one.
    """
    nodes, tensors = _needed(model.graph, list(dict.fromkeys(names)))
    graph = model.graph
    result = ModelProto()
    copy_fields(model, result, leave_out=("graph", "training_info"))
    part = result.graph
    part.name = graph.name
    part.node.extend(nodes)
    stored = {tensor.name for tensor in graph.initializer}
    part.initializer.extend(tensor for tensor in graph.initializer if tensor.name in tensors)
    part.sparse_initializer.extend(s for s in graph.sparse_initializer if s.values.name in tensors)
    # An input with a default stays or goes with its default: alone it would have to be fed.
    part.input.extend(value for value in graph.input if value.name in tensors or value.name not in stored)
    part.value_info.extend(value for value in (*graph.value_info, *graph.output) if value.name in tensors)
    return result


def walk_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs nested in it, each before those inside it."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            pending.extend(bodies(node))


def bodies(node: NodeProto) -> list[GraphProto]:
    """The graphs that are attributes of a node."""
    graphs = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            graphs.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            graphs.extend(attribute.graphs)
    return graphs


def tensor_names(graph: GraphProto) -> Iterator[str]:
    """The names of inputs, initializers and results of nodes; an input with a default comes twice."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def names_read(node: NodeProto) -> set[str]:
    """Inputs of a node and every name used inside its subgraphs, of which some are captured from outside."""
    names = set(node.input)
    for body in (nested for graph in bodies(node) for nested in walk_graphs(graph)):
        names.update(name for inner in body.node for name in inner.input)
        names.update(value.name for value in body.output)
    return names


def _needed(graph: GraphProto, targets: list[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that the targets depend on, in the order of the graph, and every tensor among them."""
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    owner = _owners(graph)
    _check(graph, owner, targets)
    tensors = {name for name in targets if name not in owner}
    used: set[int] = set()
    pending = [owner.get(name, producer.get(name)) for name in targets]
    while pending:
        index = pending.pop()
        if index is None or index in used:
            continue
        used.add(index)
        read = names_read(graph.node[index])
        pending.extend(producer.get(name) for name in read - tensors)
        tensors |= read
        tensors.update(graph.node[index].output)
    tensors.discard("")
    return [graph.node[index] for index in sorted(used)], tensors


def _owners(graph: GraphProto) -> dict[str, int]:
    """By the name of a tensor inside a body, the index of the node that the body belongs to."""
    return {
        name: index
        for index, node in enumerate(graph.node)
        for body in bodies(node)
        for nested in walk_graphs(body)
        for name in tensor_names(nested)
    }


def _check(graph: GraphProto, owner: dict[str, int], targets: Sequence[str]) -> None:
    """Raises UsageError if a target is no tensor, or one of several graphs."""
    wanted = set(targets)
    count = Counter(
        name for nested in walk_graphs(graph) for name in wanted.intersection(tensor_names(nested))
    )
    for name in targets:
        if not count[name]:
            known = sorted({*tensor_names(graph), *owner})
            raise UsageError(f"the model has no tensor '{name}'{nearest(name, known)}")
        if count[name] > 1:
            raise UsageError(f"several graphs have a tensor '{name}'; give them names of their own")
