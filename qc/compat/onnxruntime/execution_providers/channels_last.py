"""Inputs and outputs whose channels come last, of a model that computes with channels behind the batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onnx import GraphProto, ModelProto, TensorShapeProto, ValueInfoProto, helper

from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.protos import walk_graphs

_INSIDE = "_channels_first"


def with_channels_last(model: ModelProto, inputs: Collection[str], outputs: Collection[str]) -> ModelProto:
    """A copy of a model with a Transpose behind some inputs and in front of some outputs.

    Raises:
        UsageError: there is no such input or output, or it has no shape with three axes or more.
    """
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for name in inputs:
        rank = _move_channels(_named(name, graph.input, "inputs_to_make_channel_last"))
        _rename(graph, name, name + _INSIDE, also_made=False)
        order = [0, rank - 1, *range(1, rank - 1)]
        graph.node.insert(0, helper.make_node("Transpose", [name], [name + _INSIDE], perm=order))
    for name in outputs:
        rank = _move_channels(_named(name, graph.output, "outputs_to_make_channel_last"))
        _rename(graph, name, name + _INSIDE, also_made=True)
        order = [0, *range(2, rank), 1]
        graph.node.append(helper.make_node("Transpose", [name + _INSIDE], [name], perm=order))
    return made


def _named(name: str, known: Sequence[ValueInfoProto], option: str) -> ValueInfoProto:
    for info in known:
        if info.name == name:
            return info
    names = [info.name for info in known]
    raise UsageError(f"{option}: the model has no '{name}' there{nearest(name, names)}")


def _move_channels(info: ValueInfoProto) -> int:
    """Puts the second axis last in a shape; returns how many axes there are."""
    lengths = info.type.tensor_type.shape.dim
    if len(lengths) < 3:
        raise UsageError(f"'{info.name}' has {len(lengths)} axes; channels can come last of 3 or more")
    moved = [lengths[0], *lengths[2:], lengths[1]]
    info.type.tensor_type.shape.CopyFrom(TensorShapeProto(dim=moved))
    return len(moved)


def _rename(graph: GraphProto, old: str, new: str, also_made: bool) -> None:
    """Lets all that read a tensor, in bodies too, read it by another name, and what makes it give it that."""
    for inner in walk_graphs(graph):
        for node in inner.node:
            node.input[:] = [new if name == old else name for name in node.input]
            if also_made:
                node.output[:] = [new if name == old else name for name in node.output]
        if inner is not graph:
            for info in inner.output:
                info.name = new if info.name == old else info.name
