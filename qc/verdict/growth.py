"""Why a result is larger than the float model."""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto

from qc.ir.onnx.protos import model_tensors, walk_nodes, without_weights
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import FLOAT_TYPES

from ..rendering.words import file_size

_SHOWN = 3


def cause_of_growth(before: ModelProto, after: ModelProto) -> str:
    """What takes the most room that the float model did not need, in words.

    Float constants that only the result holds, codes that are more than the weights they stand for, or the
    graph itself.

    Args:
        before: the float model.
        after: the larger result.
    """
    held, made = _tensors(before), _tensors(after)
    floats = [one for name, one in made.items() if name not in held and one.stored_type in FLOAT_TYPES]
    codes = [one for name, one in made.items() if name not in held and one.stored_type not in FLOAT_TYPES]
    coded = sum(one.size for name, one in held.items() if name not in made)
    graph = without_weights(after).ByteSize() - without_weights(before).ByteSize()
    causes = [
        (
            sum(one.nbytes for one in floats),
            f"float constants that the float model computes at each run{_largest(floats)}",
        ),
        (sum(one.size for one in codes) - coded, f"weights that are stored twice or padded{_largest(codes)}"),
        (graph, f"{_added(before, after)}, beside weights that are few"),
    ]
    size, words = max(causes)
    return f"{file_size(max(size, 0))} more are {words}"


def _added(before: ModelProto, after: ModelProto) -> str:
    """The ops that only the result has, in words."""
    counts = [Counter(node.op_type for node in walk_nodes(model.graph.node)) for model in (before, after)]
    added = counts[1] - counts[0]
    if added.keys() >= {"QuantizeLinear", "DequantizeLinear"}:
        return "the quantize and dequantize ops with their scales"
    types = [op_type for op_type, _ in added.most_common(_SHOWN)]
    if not types:
        return "names, types and constants of the graph"
    return f"the added ops ({', '.join(types)}) with their constants"


def _tensors(model: ModelProto) -> dict[str, TensorRef]:
    """The tensors that a model stores, by name."""
    return {tensor.name: TensorRef(tensor) for tensor in model_tensors(model)}


def _largest(tensors: list[TensorRef]) -> str:
    """The largest of some tensors, in words."""
    if not tensors:
        return ""
    largest = max(tensors, key=lambda one: one.nbytes)
    return f", the largest '{largest.proto.name}'"
