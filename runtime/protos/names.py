"""The names of tensors: those that a graph defines, and renaming those that its nodes read."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, NodeProto

from qc.ir.onnx.protos import captures, nested_graphs, reads


def tensor_names(graph: GraphProto) -> Iterator[str]:
    """The names of inputs, initializers and results of nodes; an input with a default comes twice."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def with_reads_renamed(node: NodeProto, old: str, new: str) -> NodeProto:
    """The node with another name wherever it reads ``old``, its bodies included."""
    if old not in reads(node):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    _rename(copy, old, new)
    return copy


def _rename(node: NodeProto, old: str, new: str) -> None:
    node.input[:] = [new if name == old else name for name in node.input]
    for graph in nested_graphs(node):
        if old in captures(graph):
            for inner in graph.node:
                _rename(inner, old, new)
            for info in graph.output:
                info.name = new if info.name == old else info.name
