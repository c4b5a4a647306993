"""Which ops only move numbers, the bodies of Scan, and newer opsets."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, ModelProto
from onnx.numpy_helper import to_array
from onnx.version_converter import convert_version

from qc.ir.facts.op_table import GRID_PRESERVING

__all__ = ["to_array"]


def _is_grid_preserving_op(op_type: str, domain: str = "") -> bool:
    """Whether the result of such an op holds numbers of its input alone, so that it has the same grid."""
    return not domain and op_type in GRID_PRESERVING


def _iterate_graphs_recursive(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and the bodies of its Scan ops."""
    yield graph
    for node in graph.node:
        if node.op_type == "Scan":
            yield from _iterate_graphs_recursive(next(one.g for one in node.attribute if one.name == "body"))


def _convert_version_with_external_weights(model: ModelProto, target_opset_version: int) -> ModelProto:
    """The model in another opset."""
    return convert_version(model, target_opset_version)
