"""``QuantFormat.QOperator``: a QDQ model in ONNX Runtime's operators of integers, such as QLinearConv."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto
from onnxruntime import GraphOptimizationLevel

from qc.ir.base.files import temporary_folder
from qc.runtime import open_session

# What ONNX Runtime does beyond is for the machine at hand, such as a blocked layout of channels.
_LEVEL = GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def as_operators(model: ModelProto, base_dir: Path | None) -> ModelProto:
    """A QDQ model as ONNX Runtime writes it for itself when it opens it.

    Args:
        base_dir: the folder that external data is relative to.

    Raises:
        ModelError: ONNX Runtime does not open the model.
    """
    with temporary_folder() as folder:
        path = folder / "operators.onnx"
        open_session(
            model,
            base_dir=base_dir,
            optimized_file=path,
            settings={"graph_optimization_level": _LEVEL},
        )
        return onnx.load(path)
