"""The types that scripts import from ``aimet_onnx.common.defs`` or ``aimet_common.defs``."""

from ..defs import QuantizationDataType, QuantScheme, qtype

__all__ = ["QuantScheme", "QuantizationDataType", "qtype"]
