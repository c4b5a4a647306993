"""The nodes of an ONNX model with what is behind and ahead of them, through all graphs."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from qc.ir.onnx.protos import nested_graphs

_QDQ = ("QuantizeLinear", "DequantizeLinear")


@dataclass(eq=False)
class Node:
    """A node within its graph.

    Attributes:
        proto: the node itself.
        graph: the wiring of the graph that it stands in.
    """

    proto: NodeProto
    graph: GraphWiring

    @property
    def op_type(self) -> str:
        """The op type, without the domain."""
        return str(self.proto.op_type)

    @property
    def label(self) -> str:
        """How messages name it: type and name, or its first result if it has no name."""
        name = self.proto.name or next((f"of '{out}'" for out in self.proto.output if out), "")
        return f"{self.op_type} '{name}'" if self.proto.name else f"{self.op_type} {name}".strip()

    @property
    def rounds(self) -> bool:
        """Whether it is a QuantizeLinear or a DequantizeLinear."""
        return self.op_type in _QDQ

    def attribute(self, name: str) -> AttributeProto | None:
        """An attribute; None if it is not set."""
        return next((one for one in self.proto.attribute if one.name == name), None)

    def producer(self, port: int) -> Node | None:
        """The node that makes an input; None for inputs of the graph, constants, and inputs left out."""
        if port >= len(self.proto.input):
            return None
        return self.graph.producers.get(self.proto.input[port])

    def constant(self, port: int) -> TensorProto | None:
        """An input that is an initializer or the value of a Constant node."""
        return self.graph.constant(self.proto.input[port]) if port < len(self.proto.input) else None

    def consumers(self) -> list[Node]:
        """The nodes that read its results in its own graph."""
        return [reader for out in self.proto.output for reader in self.graph.readers.get(out, ())]

    def is_output(self) -> bool:
        """Whether one of its results is one of its graph's."""
        return any(out in self.graph.outputs for out in self.proto.output)

    def dequantizer(self, port: int) -> Node | None:
        """The DequantizeLinear that makes an input; None if another node does, or none."""
        node = self.producer(port)
        return node if node is not None and node.op_type == "DequantizeLinear" else None

    def reads_grid(self) -> bool:
        """Whether it reads data, not just constants, that was dequantized."""
        found = (self.dequantizer(port) for port in range(len(self.proto.input)))
        return any(node is not None and node.constant(0) is None for node in found)


class GraphWiring:
    """What makes and what reads the tensors of a graph; those of the graphs around it can be captured.

    Attributes:
        proto: the graph itself.
        nodes: its nodes, in its order.
        outputs: the names of its outputs.
        opset: the version of ONNX's operators in the model; 0 if it was not told.
        owner: the node whose body it is; None for the main graph.
    """

    def __init__(
        self, graph: GraphProto, outer: GraphWiring | None = None, opset: int = 0, owner: Node | None = None
    ) -> None:
        self.proto = graph
        self.owner = owner
        self.opset: int = outer.opset if outer is not None else opset
        self.nodes = [Node(node, self) for node in graph.node]
        self.outputs = {value.name for value in graph.output}
        own = {out: node for node in self.nodes for out in node.proto.output if out}
        self.producers: Mapping[str, Node] = ChainMap(own, *([dict(outer.producers)] if outer else []))
        self._outer = outer
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.proto.input):
                if name:
                    self.readers[name].append(node)

    @cached_property
    def _initializers(self) -> dict[str, TensorProto]:
        return {tensor.name: tensor for tensor in self.proto.initializer}

    def constant(self, name: str) -> TensorProto | None:
        """The initializer, or the value of the Constant node, of that name."""
        if name in self._initializers:
            return self._initializers[name]
        node = self.producers.get(name)
        value = node.attribute("value") if node is not None and node.op_type == "Constant" else None
        if value is not None:
            return value.t
        return self._outer.constant(name) if self._outer is not None else None


def all_nodes(
    graph: GraphProto, outer: GraphWiring | None = None, opset: int = 0, owner: Node | None = None
) -> Iterator[Node]:
    """The nodes of a graph and of all graphs within it, each before those within it."""
    wiring = GraphWiring(graph, outer, opset, owner)
    for node in wiring.nodes:
        yield node
        for body in nested_graphs(node.proto):
            yield from all_nodes(body, wiring, owner=node)
