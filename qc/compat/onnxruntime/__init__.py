"""``onnxruntime.quantization``, done by qc: ``from qc.compat.onnxruntime import ...``.

The types are ONNX Runtime's own. What is quantized follows from qc's targets, and not from the rules of
ONNX Runtime's quantizer; see docs/switching-from-onnxruntime.md.
"""

import onnxruntime.quantization
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    DynamicQuantConfig,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
)

from ..missing import missing_names
from .configs import get_qdq_config
from .install import install
from .quantize import quantize, quantize_dynamic, quantize_static
from .quantizers import ONNXQuantizer, QDQQuantizer
from .shape_inference import quant_pre_process

__all__ = [
    "CalibrationDataReader",
    "CalibrationMethod",
    "DynamicQuantConfig",
    "ONNXQuantizer",
    "QDQQuantizer",
    "QuantFormat",
    "QuantType",
    "StaticQuantConfig",
    "get_qdq_config",
    "install",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
]

__getattr__ = missing_names(
    "onnxruntime.quantization",
    dict.fromkeys(dir(onnxruntime.quantization), "import it from onnxruntime.quantization itself")
    | {"create_calibrator": "quantize_static calibrates"},
)
