"""The main graph as the placement rules see it: single ops, and fused ones that count as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_table import GRID_PRESERVING, WEIGHTED, traits_of
from qc.ir.graph import Graph, Op, Value

# Ops that AIMET takes to hand on values of input 0.
_GRID_PRESERVING = GRID_PRESERVING | {"Col2Im", "NonZero", "Pad", "SplitToSequence"}
_OTHER_GRID_PRESERVING = {("qti_aisw", "BatchToSpace"), ("qti_aisw", "SpaceToBatch")}


@dataclass(frozen=True, eq=False)
class Node:
    """One op, or several that count as one.

    Attributes:
        op_type, domain: what it counts as.
        inputs, outputs: what it reads and makes, by port; None for what is left out.
        ops: the ops of the graph, in topological order.
        attributes: those that differ from the ones of the last op.
    """

    op_type: str
    domain: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    ops: tuple[Op, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def is_type(self, *op_types: str) -> bool:
        """Whether this is one of the given ops of the standard ONNX domain."""
        return not self.domain and self.op_type in op_types

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute."""
        return self.attributes.get(name, self.ops[-1].attribute(name, default))

    def input(self, port: int) -> Value | None:
        """The input at a port; None if there is none."""
        return self.inputs[port] if port < len(self.inputs) else None

    @property
    def made(self) -> Iterator[Value]:
        """The outputs that are not left out."""
        return (value for value in self.outputs if value is not None)

    @property
    def is_grid_preserving(self) -> bool:
        """Whether the result holds values of input 0."""
        if self.domain:
            return (self.domain, self.op_type) in _OTHER_GRID_PRESERVING
        return self.op_type in _GRID_PRESERVING

    @property
    def label(self) -> str:
        """How remarks name it."""
        return self.ops[-1].label if len(self.ops) == 1 else f"{self.op_type} at {self.ops[-1].label}"


class Parameter(NamedTuple):
    """A constant in a slot for parameters.

    Attributes:
        slot: the kind, such as ``weight``.
        value: the constant as it is stored.
        transposed: whether a Transpose lies between it and the op.
    """

    slot: str
    value: Value
    transposed: bool


class NodeGraph:
    """The nodes of a graph.

    Args:
        graph: the main graph.
        fused: nodes that stand for several ops.

    Attributes:
        nodes: in topological order, a fused one where its last op stands. Constant ops are not among them.
        scanned: the ops in the bodies of its Scans, whose inputs are what they capture of the main graph.
    """

    def __init__(self, graph: Graph, fused: Sequence[Node] = ()) -> None:
        self.graph = graph
        last = {node.ops[-1]: node for node in fused}
        self._of_op = {op: node for node in fused for op in node.ops}
        self.nodes: list[Node] = []
        for op in graph.ops():
            if op.is_type("Constant"):
                continue
            if op not in self._of_op:
                self._of_op[op] = last[op] = Node(op.op_type, op.domain, op.inputs, op.outputs, (op,))
            if op in last:
                self.nodes.append(last[op])
        self.scanned = [
            Node(op.op_type, op.domain, tuple(map(self._captured, op.inputs)), (), (op,))
            for body in _scan_bodies(graph)
            for op in body.ops()
        ]

    def producer(self, value: Value) -> Node | None:
        """The node that makes a value; None for inputs, constants and values inside fused nodes."""
        op = value.producer
        node = self._of_op.get(op) if op is not None else None
        return node if node is not None and value in node.outputs else None

    def is_inner(self, value: Value) -> bool:
        """Whether a value is made, and only used, inside a fused node."""
        op = value.producer
        node = self._of_op.get(op) if op is not None else None
        return node is not None and value not in node.outputs

    def readers(self, value: Value) -> list[Node]:
        """The nodes that read a value, in order; one that reads it twice is there twice."""
        return [self._of_op[use.op] for use in value.uses if use.op in self._of_op]

    def parameters(self, node: Node) -> Iterator[Parameter]:
        """The constants in the parameter slots of a node."""
        for slot, port in traits_of(node.op_type, node.domain).trained.items():
            value = node.input(port)
            if value is None:
                continue
            stored, transposed = self._stored(value, through_transpose=node.is_type("MatMul"))
            if constant_data(stored) is not None:
                yield Parameter(slot, stored, transposed)

    def _captured(self, value: Value | None) -> Value | None:
        """What a value in a body stands for in this graph; None if it is made in the body."""
        original = value.original if value is not None else None
        return original if original is not None and original.graph is self.graph else None

    def _stored(self, value: Value, through_transpose: bool) -> tuple[Value, bool]:
        """The value behind Identity, and Transpose if asked, and whether there is a Transpose."""
        transposed = False
        while (op := value.producer) is not None:
            passes = op.is_type("Identity") or (op.is_type("Transpose") and through_transpose)
            source = op.inputs[0] if passes else None
            if source is None:
                break
            transposed ^= op.is_type("Transpose")
            value = source
        return value, transposed


def _scan_bodies(graph: Graph) -> Iterator[Graph]:
    for op in graph.ops():
        for body in op.subgraphs.values() if op.is_type("Scan") else ():
            yield body
            yield from _scan_bodies(body)


def channel_axis(node: Node, parameter: Parameter) -> int | None:
    """The axis of output channels of a parameter, of one with a single axis that; None for others."""
    data = constant_data(parameter.value)
    rank = len(data.shape) if data is not None else 0
    if rank == 1 or (rank and node.is_type("Conv")):
        return 0
    if not rank or not node.is_type(*WEIGHTED):
        return None
    if node.is_type("ConvTranspose"):
        return 1
    if node.is_type("Gemm"):
        return 0 if node.attribute("transB", 0) else 1
    return rank - 2 if parameter.transposed else rank - 1
