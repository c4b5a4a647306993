"""ONNX Runtime's own quantizer, with calibration data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter
from models.labelled import Feed
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds as ONNX Runtime's quantizer wants them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


def prepare(model: Path, folder: Path, preprocess: bool) -> Path:
    """Raises the opset to 13, which per-channel QDQ needs, and applies ONNX Runtime's own preprocessing.

    The preprocessing is what its documentation recommends; on some models only going without it works.
    """
    raised, prepared = folder / "raised.onnx", folder / "prepared.onnx"
    proto = onnx.load(model)
    if any(entry.domain == "" and entry.version < 13 for entry in proto.opset_import):
        onnx.save(onnx.version_converter.convert_version(proto, 13), raised)
        model = raised
    if not preprocess:
        return model
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    return prepared


def quantize_ort(task: Any, model: Path, output: Path, operators: list[str] | None) -> None:
    """Runs ``quantize_static``: int8 weights per channel and int8 activations, min-max, QDQ."""
    quantize_static(
        str(model),
        str(output),
        Reader(task.calib()),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=operators,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
