"""Cross-layer equalization, in place as AIMET-ONNX does it."""

from __future__ import annotations

from onnx import ModelProto
from onnxruntime.quantization.onnx_model import ONNXModel

import qc

from .batch_norm_fold import fold_all_batch_norms_to_weight


def equalize_model(model: ModelProto | ONNXModel) -> None:
    """Folds batch normalizations and balances the ranges of channels between layers; the model is changed.

    What it computes stays the same. See the pass ``equalize``.
    """
    proto = model.model if isinstance(model, ONNXModel) else model
    fold_all_batch_norms_to_weight(proto)
    proto.CopyFrom(qc.compile(proto, "equalize").float_model)
