"""The shapes that follow from those that are known."""

from __future__ import annotations

from onnx import ModelProto

from qc.ir.graph import Graph
from qc.ir.onnx.types import Types, inferred
from qc.ir.rewriter import Rewriter


def take_inferred_shapes(rewriter: Rewriter, graph: Graph, proto: ModelProto) -> None:
    """Gives every value of a main graph the shape that ONNX infers for it.

    Args:
        rewriter: what changes the types, within an action.
        graph: the main graph.
        proto: the graph as a model, its ops in the order of the graph.
    """
    _set_types(rewriter, graph, inferred(proto))


def _set_types(rewriter: Rewriter, graph: Graph, types: Types) -> None:
    """Takes over the types that follow; the ops of a graph stand in its proto in their order."""
    for value in graph.values():
        source = value.captured
        found = source.type if source is not None else types.known.get(value.name)
        if value.const is None and found is not None and found.shape is not None and found != value.type:
            rewriter.set_type(value, value.type._replace(shape=found.shape))
    for index, op in enumerate(graph.ops()):
        for key, body in op.subgraphs.items():
            if (index, key) in types.nested:
                _set_types(rewriter, body, types.nested[index, key])
