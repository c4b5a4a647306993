"""AIMET-ONNX's names on top of qc: ``import qc.compat.aimet_onnx as aimet_onnx``.

See docs/switching-from-aimet.md for what is the same, what differs, and what is not there.
"""

from .imports import install, provided  # first: it completes the modules that are imported from here on

from . import (  # isort: skip
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
from .quant_analyzer import QuantAnalyzer, analyze_per_layer_sensitivity
from .quantsim import QuantizationSimModel, compute_encodings
from .sequential_mse.seq_mse import apply_seq_mse
from .simulation.loading import encodings_to_onnx_qdq, load_encodings_to_sim

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
    "install",
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

__version__ = "2.42.0"  # of the AIMET whose names these are
__getattr__ = provided("")
