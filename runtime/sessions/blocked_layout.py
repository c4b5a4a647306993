"""Keeps convolutions in ONNX Runtime's blocked layout across ops that do not care about the layout.

ONNX Runtime computes convolutions on tensors whose channels are stored in blocks. Around every op that it has
no blocked version of, such as qc's, it converts to the plain layout and back, which costs several times what
the op itself does. But an op that treats all elements alike computes the same in either layout. So the graph
that ONNX Runtime optimized is read back, such ops are moved to the blocked side of the conversions, and
conversions that nothing needs any more are dropped. The results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto, helper

from qc.ir.onnx.protos import attributes_of, reads

from ..native.library import QC_DOMAIN
from ..observers.insert import list_early

DOMAIN = "com.microsoft.nchwc"

# Channels that are a multiple of the largest block of any processor are stored without padding.
_LARGEST_BLOCK = 16
_UNARY = frozenset({"Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_BINARY = frozenset({"Add", "Mul", "Sub"})

# How the size of each spatial axis follows from that of a root tensor: steps of (offset, stride).
Geometry = tuple[str, tuple[tuple[tuple[int, int], ...], ...]]


@dataclass(frozen=True)
class _Blocked:
    """The blocked twin of a plain tensor; equal geometries of equal channels mean equal shapes."""

    name: str
    channels: int
    geometry: Geometry


def keep_blocked(model: ModelProto) -> ModelProto | None:
    """Moves layout-agnostic ops of a graph that ONNX Runtime optimized into the blocked layout.

    Args:
        model: what ONNX Runtime wrote after its layout optimization, in topological order; it is changed.

    Returns:
        ``model``, to be run without further optimization, or None if there was nothing to move.
    """
    if all(node.domain != DOMAIN for node in model.graph.node):
        return None
    mover = _Mover(model)
    nodes = [moved for node in model.graph.node for moved in mover.move(node)]
    if not mover.moved:
        return None
    nodes = _without_unread_conversions(nodes, (output.name for output in model.graph.output))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    list_early(model.graph)
    return model


class _Mover:
    """Goes through the nodes of a graph once and rewrites each."""

    def __init__(self, model: ModelProto) -> None:
        self.moved = False
        self._twins: dict[str, _Blocked] = {}
        self._renamed: dict[str, str] = {}
        self._geometry: dict[str, Geometry] = {}
        self._names = {name for node in model.graph.node for name in node.output}

    def move(self, node: NodeProto) -> Iterator[NodeProto]:
        """The nodes that take the place of ``node``."""
        for port, name in enumerate(node.input):
            node.input[port] = self._renamed.get(name, name)
        if node.domain == DOMAIN:
            yield from self._convert(node)
        elif self._is_movable(node):
            yield from self._elementwise(node)
        else:
            if node.op_type == "Observe" and self._is_unpadded(node):
                node.input[0] = self._twins[node.input[0]].name
                self.moved = True
            yield node

    def _convert(self, node: NodeProto) -> Iterator[NodeProto]:
        attributes = attributes_of(node)
        twin = self._twins.get(node.input[0])
        plain = not attributes.get("channels_last", 0)
        if node.op_type == "ReorderInput" and twin is not None and plain:
            self._renamed[node.output[0]] = twin.name
            return
        if node.op_type == "ReorderOutput" and plain:
            geometry = self._geometry.get(node.input[0], (node.input[0], ()))
            self._twins[node.output[0]] = _Blocked(node.input[0], attributes["channels"], geometry)
        elif node.op_type not in ("ReorderInput", "ReorderOutput"):
            self._geometry[node.output[0]] = self._after(node, attributes)
        yield node

    def _after(self, node: NodeProto, attributes: dict[str, Any]) -> Geometry:
        """The geometry of the result of a blocked convolution or pooling."""
        root, steps = self._geometry.get(node.input[0], (node.input[0], ()))
        kernel = attributes.get("kernel_shape", ())
        known = attributes.get("auto_pad", "NOTSET") == "NOTSET" and not attributes.get("ceil_mode", 0)
        if node.op_type not in ("Conv", "MaxPool", "AveragePool") or not kernel or not known:
            return node.output[0], ()
        rank = len(kernel)
        pads = attributes.get("pads", [0] * (2 * rank))
        strides, dilations = (attributes.get(key, [1] * rank) for key in ("strides", "dilations"))
        step = tuple(
            (pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[axis] - 1) - 1, strides[axis])
            for axis in range(rank)
        )
        unchanged = all(axis == (-1, 1) for axis in step)
        return root, steps if unchanged else (*steps, step)

    def _is_movable(self, node: NodeProto) -> bool:
        twins = [self._twins.get(name) for name in node.input]
        if node.domain == QC_DOMAIN and node.op_type == "FakeQuantize":
            return twins[0] is not None and attributes_of(node).get("granularity") == "tensor"
        if node.domain or None in twins[:1]:
            return False
        if node.op_type in _BINARY:
            shapes = {(twin.channels, twin.geometry) if twin is not None else None for twin in twins}
            return len(shapes) == 1
        return node.op_type in _UNARY

    def _is_unpadded(self, node: NodeProto) -> bool:
        """Whether observing the twin sees exactly the elements of the tensor."""
        twin = self._twins.get(node.input[0])
        whole = attributes_of(node).get("axis", -1) == -1
        return node.domain == QC_DOMAIN and twin is not None and whole and twin.channels % _LARGEST_BLOCK == 0

    def _elementwise(self, node: NodeProto) -> Iterator[NodeProto]:
        """The op on the twins, and a conversion for readers that want the plain result."""
        self.moved = True
        result = node.output[0]
        first = self._twins[node.input[0]]
        for port, name in enumerate(node.input):
            if name in self._twins:
                node.input[port] = self._twins[name].name
        node.output[0] = self._fresh(f"{result}.blocked")
        self._twins[result] = _Blocked(node.output[0], first.channels, first.geometry)
        self._geometry[node.output[0]] = first.geometry
        yield node
        yield helper.make_node(
            "ReorderOutput",
            [node.output[0]],
            [result],
            name=f"{node.output[0]}.plain",
            domain=DOMAIN,
            channels=first.channels,
            channels_last=0,
        )

    def _fresh(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def _without_unread_conversions(nodes: list[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    read = set(outputs)
    for node in nodes:
        read.update(reads(node))
    return [node for node in nodes if node.op_type != "ReorderOutput" or node.output[0] in read]
