"""``onnxruntime.quantization.quant_utils``: the types that scripts import from there, as they are."""

from onnxruntime.quantization.quant_utils import QuantFormat, QuantType

__all__ = ["QuantFormat", "QuantType"]
