"""The shapes that follow from those that are known."""

from __future__ import annotations

from onnx import ModelProto

from qc.ir.graph import Graph
from qc.ir.onnx.protos import without_weights
from qc.ir.onnx.shape_inference import hide_bodies, misfit
from qc.ir.onnx.types import Types, inferred, type_of
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import UNKNOWN, Shape


def take_inferred_shapes(rewriter: Rewriter, graph: Graph, proto: ModelProto) -> None:
    """Gives every value of a main graph the shape that ONNX infers for it.

    Args:
        rewriter: what changes the types, within an action.
        graph: the main graph.
        proto: the graph as a model, its ops in the order of the graph; loses shapes that contradict these.
    """
    _forget_constants(proto)
    _forget_contradictions(proto)
    _set_types(rewriter, graph, inferred(proto))


def _forget_constants(proto: ModelProto) -> None:
    """Takes out what was declared of what is constant now, which ONNX believes more than the constant."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    kept = [info for info in proto.graph.value_info if info.name not in constants]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)


def first_misfit(proto: ModelProto) -> str:
    """The first op of a main graph that cannot take the shapes that follow, and why; empty if there is none.

    Bodies do not count: what chooses one may be fixed later.
    """
    bare = _undeclared(proto)
    for node in bare.graph.node:
        node.name = node.name or next(filter(None, node.output), "")
    hide_bodies(bare)
    return misfit(bare)


def _undeclared(proto: ModelProto) -> ModelProto:
    """A copy without weights, in which no shape of a result is declared."""
    bare = without_weights(proto)
    del bare.graph.value_info[:]
    for info in bare.graph.output:
        info.type.tensor_type.ClearField("shape")
    return bare


def _forget_contradictions(proto: ModelProto) -> None:
    """Takes out the shapes of results that were right for the lengths of an export alone."""
    bare = _undeclared(proto)
    following = inferred(bare).known
    for info in (*proto.graph.value_info, *proto.graph.output):
        said, follows = type_of(info.type).shape, following.get(info.name, UNKNOWN).shape
        if said is not None and follows is not None and not _agree(said, follows):
            info.type.tensor_type.ClearField("shape")


def _agree(said: Shape, follows: Shape) -> bool:
    """Whether two shapes of one tensor have the same rank, and the same length where both have one."""
    known = (pair for pair in zip(said, follows, strict=False) if all(isinstance(size, int) for size in pair))
    return len(said) == len(follows) and all(one == other for one, other in known)


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
