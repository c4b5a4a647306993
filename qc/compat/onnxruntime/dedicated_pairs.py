"""``DedicatedQDQPair``: quantize and dequantize ops of its own for each op that reads a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto

from qc.ir.base.names import Names
from qc.ir.model import Model
from qc.ir.onnx.protos import walk_graphs
from qc.passes.framework.base import Pass, Stage
from qc.passes.framework.context import PassContext


@dataclass(frozen=True)
class DedicatePairs(Pass):
    """Repeats the QuantizeLinear and DequantizeLinear of a tensor for each op that reads it.

    That changes no number. An output of the model, or else the first op, and bodies that capture the tensor
    have those that were there.
    """

    name = "dedicate-pairs"
    stage = Stage.LOWER

    def run(self, model: Model, context: PassContext) -> None:
        made = context.artifacts["qdq"].payload
        assert isinstance(made, ModelProto)
        names = Names(_names(made.graph))
        for graph in walk_graphs(made.graph):
            _dedicate(graph, names)


def _names(main: GraphProto) -> Iterator[str]:
    for graph in walk_graphs(main):
        yield from (one.name for one in (*graph.input, *graph.initializer))
        for node in graph.node:
            yield from (node.name, *node.output)


def _dedicate(graph: GraphProto, names: Names) -> None:
    codes = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    pairs = {
        node.output[0]: (codes[node.input[0]], node)
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in codes
    }
    read = {info.name for info in graph.output}
    added: list[tuple[int, NodeProto]] = []
    for place, node in enumerate(graph.node):
        for name in dict.fromkeys(node.input):
            if name not in pairs:
                continue
            if name in read:
                pair = _repeated(*pairs[name], names)
                node.input[:] = [pair[1].output[0] if one == name else one for one in node.input]
                added += [(place, one) for one in pair]
            read.add(name)
    for place, one in reversed(added):
        graph.node.insert(place, one)


def _repeated(quantize: NodeProto, dequantize: NodeProto, names: Names) -> tuple[NodeProto, NodeProto]:
    """Copies of two ops, of which the second reads the first."""
    first, second = _renamed(quantize, names), _renamed(dequantize, names)
    second.input[0] = first.output[0]
    return first, second


def _renamed(node: NodeProto, names: Names) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name, copy.output[0] = names.free(node.name), names.free(node.output[0])
    names.claim(copy.name)
    names.claim(copy.output[0])
    return copy
