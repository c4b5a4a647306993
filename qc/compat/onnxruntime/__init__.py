"""``onnxruntime.quantization``'s static quantization, done by qc: ``from qc.compat.onnxruntime import ...``.

The types are ONNX Runtime's own. What is quantized follows from qc's target ``ort-cpu``, and not from the
rules of ONNX Runtime's quantizer; see docs/switching-from-onnxruntime.md.
"""

from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType

from ..missing import missing_names
from .quantize import quantize_static

__all__ = ["CalibrationDataReader", "CalibrationMethod", "QuantFormat", "QuantType", "quantize_static"]

_STATIC = "use quantize_static"
__getattr__ = missing_names(
    "onnxruntime.quantization",
    {
        "quantize_dynamic": _STATIC,
        "quantize": _STATIC,
        "DynamicQuantConfig": _STATIC,
        "StaticQuantConfig": _STATIC,
        "get_qdq_config": _STATIC,
        "create_calibrator": "quantize_static calibrates",
        "quant_pre_process": "quantize_static simplifies the model itself",
        "shape_inference": "quantize_static simplifies the model itself",
    },
)
