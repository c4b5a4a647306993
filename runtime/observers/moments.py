"""Sums, sums of squares and Gram matrices of a tensor, as ONNX nodes in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qc.ir.executor import Observation


class MomentOutputs(NamedTuple):
    """Names of the values that hold moments, both float64.

    ``sums`` are the sums of the elements, of shape ``(channels,)`` or ``(1,)``; ``products`` those of their
    squares, of the same shape, or of the products of channels, ``(channels, channels)``.
    """

    sums: str
    products: str


def moment_nodes(tensor: str, request: Observation, outputs: MomentOutputs) -> list[NodeProto]:
    """Nodes that compute the moments of ``tensor``; they work from opset 12 on.

    NaN and infinity count as zero.
    """
    nodes = _Nodes(f"{outputs.sums}.")
    wide = nodes.add("Cast", tensor, to=TensorProto.DOUBLE)
    zero = nodes.constant(np.zeros((), np.float64))
    is_finite = nodes.add("Equal", nodes.add("Sub", wide, wide), zero)  # a NaN is what infinity leaves, too
    rows = _channels_in_the_middle(nodes, nodes.add("Where", is_finite, wide, zero), request.axis)
    nodes.add("Einsum", rows, equation="pcr->c", output=outputs.sums)
    equation = "pcr,pdr->cd" if request.gram else "pcr,pcr->c"
    nodes.add("Einsum", rows, rows, equation=equation, output=outputs.products)
    return nodes.nodes


def _channels_in_the_middle(nodes: _Nodes, tensor: str, axis: int | None) -> str:
    """The tensor of any rank with its axes before and after the one of the channels made into one each."""
    one = nodes.constant(np.ones(1, np.int64))
    if axis is None:
        before, channels, after = one, one, nodes.length(nodes.add("Flatten", tensor, axis=0), 1)
    else:
        before = nodes.length(nodes.add("Flatten", tensor, axis=axis), 0)
        channels = nodes.length(tensor, axis)
        after = nodes.length(nodes.add("Flatten", tensor, axis=axis + 1), 1)
    return nodes.add("Reshape", tensor, nodes.add("Concat", before, channels, after, axis=0))


class _Nodes:
    """Appends nodes with one output each to a list."""

    def __init__(self, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self._prefix = prefix

    def add(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Adds a node and returns its output."""
        name = output or f"{self._prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"{name}.node", **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Adds a constant."""
        return self.add("Constant", value=numpy_helper.from_array(array))

    def length(self, tensor: str, axis: int) -> str:
        """The length of an axis, int64 of shape ``(1,)``."""
        return self.add("Gather", self.add("Shape", tensor), self.constant(np.array([axis])))
