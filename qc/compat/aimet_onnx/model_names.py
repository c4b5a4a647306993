"""Names of nodes that have none, as AIMET gives them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from onnx import ModelProto, NodeProto

from qc.ir.onnx.protos import walk_graphs


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
    """Names the nodes of a model that have no name, or one that another has, too."""
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    for node in _nodes(model):
        while not node.name or node.name in seen:
            number = numbers[node.op_type]
            numbers[node.op_type] += 1
            node.name = f"/{node.op_type}_{number}" if number else f"/{node.op_type}"
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
    """The nodes of all graphs, those of the main graph first."""
    for graph in walk_graphs(model.graph):
        yield from graph.node
