"""Names of nodes that have none, as AIMET gives them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto

from qc.ir.onnx.protos import nested_graphs, walk_graphs


def with_names(model: ModelProto) -> ModelProto:
    """The model if each node has a name of its own, else a copy with names such as ``/TYPE_1``."""
    names = [node.name for node in _nodes(model)]
    if all(names) and len(set(names)) == len(names):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    fill_names(copy)
    return copy


def fill_names(model: ModelProto) -> None:
    """Names the nodes of a model that have no name, or one that another has, too.

    Scripts name such nodes, so they get what AIMET 2.42 gives them: ``/Relu``, then ``/Relu_2``, ``/Relu_4``.
    """
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    for node in _nodes(model):
        if not node.name or node.name in seen:
            node.name = f"/{node.op_type}"
            while node.name in seen:
                numbers[node.op_type] += 1
                node.name = f"/{node.op_type}_{numbers[node.op_type]}"
            numbers[node.op_type] += 1  # which is why AIMET leaves every other number out
        seen.add(node.name)


def rename_constants(model: ModelProto, suffix: str, instead: str = "") -> ModelProto:
    """Gives constants whose name ends so, be it several times, another end instead, if that name is free."""
    names = {tensor.name for tensor in model.graph.initializer}
    pattern = re.compile(f"(?:{re.escape(suffix)})+$")
    shorter = {name: pattern.sub(instead, name) for name in names if name.endswith(suffix)}
    renamed = {name: short for name, short in shorter.items() if short not in names}
    for graph in walk_graphs(model.graph):
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        for node in graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
    return model


def without_settings(model: ModelProto, given: ModelProto) -> ModelProto:
    """Takes out the inputs with defaults that the given model has not, such as scales that could be set."""
    known = {info.name for info in given.graph.input}
    defaults = {tensor.name for tensor in model.graph.initializer} - known
    kept = [info for info in model.graph.input if info.name not in defaults]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of all graphs: those that AIMET names, of the main graph and of bodies of Scans, first."""
    named = list(_graphs_that_aimet_names(model.graph))
    others = [graph for graph in walk_graphs(model.graph) if all(graph is not one for one in named)]
    for graph in named + others:
        yield from graph.node


def _graphs_that_aimet_names(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in nested_graphs(node) if node.op_type == "Scan" else ():
            yield from _graphs_that_aimet_names(body)
