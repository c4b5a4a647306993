"""``onnxruntime.quantization``'s static quantization, done by qc: ``from qc.compat.onnxruntime import ...``.

The types are ONNX Runtime's own. What is quantized follows from qc's targets, and not from the rules of
ONNX Runtime's quantizer; see docs/switching-from-onnxruntime.md.
"""

from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
)

from ..missing import missing_names
from .configs import get_qdq_config
from .quantize import quantize, quantize_static
from .shape_inference import quant_pre_process

__all__ = [
    "CalibrationDataReader",
    "CalibrationMethod",
    "QuantFormat",
    "QuantType",
    "StaticQuantConfig",
    "get_qdq_config",
    "quant_pre_process",
    "quantize",
    "quantize_static",
]

_STATIC = "qc finds ranges on data: use quantize_static; for weights alone there is qc's pipeline w8"
__getattr__ = missing_names(
    "onnxruntime.quantization",
    {
        "quantize_dynamic": _STATIC,
        "DynamicQuantConfig": _STATIC,
        "create_calibrator": "quantize_static calibrates",
    },
)
