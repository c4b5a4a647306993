"""The types that scripts import from ``aimet_onnx.common.defs`` or ``aimet_common.defs``."""

from ..defs import CallbackFunc, QuantizationDataType, QuantScheme, qtype

__all__ = ["CallbackFunc", "QuantScheme", "QuantizationDataType", "qtype"]
