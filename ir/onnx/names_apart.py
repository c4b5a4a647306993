"""Names of their own for all tensors of a model.

ONNX lets two branches of an If, or the bodies of two loops, use one name for different tensors, as they do
where two exports of one network became the branches. Its shape inference keeps what it knows of the numbers
in a tensor by name alone, and so takes a shape of one branch for that of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto

from .protos import nested_graphs, walk_graphs

_MARK = "/qc.twin/"


def tell_apart(model: ModelProto) -> None:
    """Gives tensors whose name another graph defines as well a name of their own."""
    _tell_apart(model.graph, set(), {})


def forget(model: ModelProto) -> None:
    """Takes back what :func:`tell_apart` did."""
    for graph in walk_graphs(model.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            info.name = info.name.partition(_MARK)[0]
        for tensor in graph.initializer:
            tensor.name = tensor.name.partition(_MARK)[0]
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [name.partition(_MARK)[0] for name in names]


def _tell_apart(graph: GraphProto, taken: set[str], around: Mapping[str, str]) -> None:
    names = dict(around)
    for name in _defined(graph):
        names[name] = f"{name}{_MARK}{len(taken)}" if name in taken else name
        taken.add(names[name])
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.name = names.get(info.name, info.name)
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for body in nested_graphs(node):
            _tell_apart(body, taken, names)


def _defined(graph: GraphProto) -> Iterator[str]:
    """The names that a graph gives to its tensors, each once."""
    made = (name for node in graph.node for name in node.output if name)
    yield from dict.fromkeys(
        (*(info.name for info in graph.input), *(tensor.name for tensor in graph.initializer), *made)
    )
