"""``onnxruntime.quantization.preprocess``, from where scripts import ``quant_pre_process`` as well."""

from .shape_inference import quant_pre_process

__all__ = ["quant_pre_process"]
