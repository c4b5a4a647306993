"""Folding of batch normalizations, in place as AIMET-ONNX does it."""

from __future__ import annotations

from onnx import ModelProto, NodeProto
from onnxruntime.quantization.onnx_model import ONNXModel

import qc

_FOLDED = "_folded"


def fold_all_batch_norms_to_weight(
    model: ModelProto | ONNXModel,
) -> tuple[list[tuple[NodeProto, NodeProto]], list[tuple[NodeProto, NodeProto]]]:
    """Folds every BatchNormalization that it can into the op before it; the model is changed.

    Weights keep their names. A BatchNormalization is not folded into the op behind it.

    Returns:
        The pairs of an op and the BatchNormalization that was folded into it, as they were before; and an
        empty list, for those folded into the op behind them.
    """
    proto = model.model if isinstance(model, ONNXModel) else model
    before = {output: node for node in proto.graph.node for output in node.output}
    folded = qc.compile(proto, "fold-batch-norms").float_model
    left = {tuple(node.input) for node in folded.graph.node if node.op_type == "BatchNormalization"}
    pairs = [
        (_copy(before[node.input[0]]), _copy(node))
        for node in proto.graph.node
        if node.op_type == "BatchNormalization" and tuple(node.input) not in left
    ]
    _restore_names(folded)
    proto.CopyFrom(folded)
    return pairs, []


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _restore_names(model: ModelProto) -> None:
    """Gives folded weights the names of those that they replaced."""
    names = {tensor.name for tensor in model.graph.initializer}
    renamed = {
        name: name.removesuffix(_FOLDED)
        for name in names
        if name.endswith(_FOLDED) and name.removesuffix(_FOLDED) not in names
    }
    for tensor in model.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
