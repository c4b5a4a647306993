"""Folding of batch normalizations, in place as AIMET-ONNX does it."""

from __future__ import annotations

from onnx import ModelProto, NodeProto
from onnxruntime.quantization.onnx_model import ONNXModel

import qc
from qc.passes.simplify.batch_norms.forward import FORWARD

from .model_names import restore_names

_FOLDED = "_folded"


def fold_all_batch_norms_to_weight(
    model: ModelProto | ONNXModel,
) -> tuple[list[tuple[NodeProto, NodeProto]], list[tuple[NodeProto, NodeProto]]]:
    """Folds every BatchNormalization that it can into the op before it or behind it; the model is changed.

    Weights keep their names.

    Returns:
        The pairs of an op and the BatchNormalization behind it that was folded into it, as they were before;
        and the pairs of a BatchNormalization and the op behind it that it was folded into.
    """
    proto = model.model if isinstance(model, ONNXModel) else model
    before = {output: node for node in proto.graph.node for output in node.output}
    behind = {node.input[0]: node for node in proto.graph.node if node.input}
    compiled = qc.compile(proto, "fold-batch-norms")
    folded, removed = compiled.float_model, compiled.ir.journal.removed
    went_forward = {tensor for tensor, remark in removed.items() if remark.reason == FORWARD}
    left = {tuple(node.input) for node in folded.graph.node if node.op_type == "BatchNormalization"}
    norms = [node for node in proto.graph.node if node.op_type == "BatchNormalization"]
    gone = [_copy(node) for node in norms if tuple(node.input) not in left]
    forward = [norm for norm in gone if norm.output[0] in went_forward]
    pairs = [(_copy(before[norm.input[0]]), norm) for norm in gone if norm not in forward]
    pairs_behind = [(norm, _copy(behind[norm.output[0]])) for norm in forward]
    restore_names(folded, _FOLDED)
    proto.CopyFrom(folded)
    return pairs, pairs_behind


fold_all_batch_norms = fold_all_batch_norms_to_weight  # the name for other frameworks


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
