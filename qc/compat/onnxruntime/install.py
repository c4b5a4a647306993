"""qc in the place of ``onnxruntime.quantization``, for scripts and tools that import that."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

_OF = "onnxruntime.quantization"
_HTP = "execution_providers.qnn"

# Where ONNX Runtime has what the layer has as well.
_PLACES: dict[str, tuple[str, ...]] = {
    "quantize": ("", ".quantize"),
    "quantize_static": ("", ".quantize"),
    "quantize_dynamic": ("", ".quantize"),
    "get_qdq_config": ("", ".quantize"),
    "QDQQuantizer": ("", ".qdq_quantizer"),
    "ONNXQuantizer": (".onnx_quantizer",),
    "MatMulNBitsQuantizer": (".matmul_nbits_quantizer",),
    "quant_pre_process": ("", ".shape_inference", ".preprocess"),
    "get_qnn_qdq_config": (f".{_HTP}", f".{_HTP}.quant_config"),
    "qnn_preprocess_model": (f".{_HTP}", f".{_HTP}.preprocess"),
}


def install() -> None:
    """Lets functions and quantizers of ``onnxruntime.quantization`` be this layer's, on every path of theirs.

    What was imported from there before stays what it is.
    """
    places = ("", f".{_HTP}", ".matmul_nbits_quantizer")
    modules = [import_module(f"{__package__}{place}") for place in places]
    defined = {name: getattr(module, name) for module in modules for name in module.__all__}
    for name, theirs in _PLACES.items():
        for place in theirs:
            with suppress(ImportError):  # of a package that ONNX Runtime's module needs
                setattr(import_module(f"{_OF}{place}"), name, defined[name])
