"""AIMET-ONNX's names on top of qc: ``import qc.compat.aimet_onnx as aimet_onnx``.

See docs/switching-from-aimet.md for what is the same, what differs, and what is not there.
"""

from ..missing import missing_names
from . import (
    adaround,
    batch_norm_fold,
    bn_reestimation,
    cross_layer_equalization,
    layer_output_utils,
    quant_analyzer,
    quantsim,
    sequential_mse,
)
from .adaround.adaround_weight import apply_adaround
from .defs import (
    QSpec,
    QuantizationDataType,
    QuantScheme,
    float8e4m3fn,
    float8e5m2,
    float16,
    int2,
    int4,
    int8,
    int16,
    qtype,
)
from .layer_output_utils import LayerOutputUtil
from .loading import encodings_to_onnx_qdq, load_encodings_to_sim
from .quant_analyzer import QuantAnalyzer, analyze_per_layer_sensitivity
from .quantsim import QuantizationSimModel, compute_encodings
from .sequential_mse.seq_mse import apply_seq_mse

__all__ = [
    "LayerOutputUtil",
    "QSpec",
    "QuantAnalyzer",
    "QuantScheme",
    "QuantizationDataType",
    "QuantizationSimModel",
    "adaround",
    "analyze_per_layer_sensitivity",
    "apply_adaround",
    "apply_seq_mse",
    "batch_norm_fold",
    "bn_reestimation",
    "compute_encodings",
    "cross_layer_equalization",
    "encodings_to_onnx_qdq",
    "float8e4m3fn",
    "float8e5m2",
    "float16",
    "int2",
    "int4",
    "int8",
    "int16",
    "layer_output_utils",
    "load_encodings_to_sim",
    "qtype",
    "quant_analyzer",
    "quantsim",
    "sequential_mse",
]

_TRAINED_ELSEWHERE = "train elsewhere, and load what it writes with set_and_freeze_param_encodings"
__getattr__ = missing_names(
    "aimet_onnx",
    {
        "adascale": _TRAINED_ELSEWHERE,
        "spinquant": _TRAINED_ELSEWHERE,
        "analysis": "use quant_analyzer, or qc sensitivity",
        "lite_mp": "set the precision of layers with set_tensor_precision",
        "mixed_precision": "set the precision of layers with set_tensor_precision",
        "amp": "set the precision of layers with set_tensor_precision",
        "llm_configurator": "",
        "llm_topology": "",
        "experimental": "",
        "graph_passes": "use qc's passes; qc list-passes names them",
        "prepare_passes": "use qc's passes; qc list-passes names them",
        "utils": "",
        "meta": "",
    },
)
