"""qc in the place of ``onnxruntime.quantization``, for scripts and tools that import that."""

from __future__ import annotations

from importlib import import_module

_OF = "onnxruntime.quantization"
_HTP = "execution_providers.qnn"

# Where ONNX Runtime has a function that the layer has, and the module of the layer that defines it.
_PLACES: dict[str, tuple[str, ...]] = {
    "quantize": ("", ".quantize"),
    "quantize_static": ("", ".quantize"),
    "quantize_dynamic": ("", ".quantize"),
    "get_qdq_config": ("", ".quantize"),
    "QDQQuantizer": ("", ".qdq_quantizer"),
    "ONNXQuantizer": (".onnx_quantizer",),
    "quant_pre_process": ("", ".shape_inference", ".preprocess"),
    "get_qnn_qdq_config": (f".{_HTP}", f".{_HTP}.quant_config"),
    "qnn_preprocess_model": (f".{_HTP}", f".{_HTP}.preprocess"),
}


def install() -> None:
    """Lets functions and quantizers of ``onnxruntime.quantization`` be this layer's, on every path of theirs.

    What was imported from there before stays what it is.
    """
    layer, for_the_htp = import_module(__package__), import_module(f"{__package__}.{_HTP}")
    for name, places in _PLACES.items():
        function = getattr(for_the_htp if name in for_the_htp.__all__ else layer, name)
        for place in places:
            setattr(import_module(f"{_OF}{place}"), name, function)
