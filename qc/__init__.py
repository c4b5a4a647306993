"""qc: a quantization compiler for ONNX.

``qc.compile(model, "w8a8", data=feeds)`` does the whole job; the pieces below it are ``qc.ir`` (the graph),
``qc.patterns`` (supergroups), ``qc.passes`` (the passes and pipelines) and ``qc.runtime`` (sessions, data,
statistics, evaluation).
"""

from . import _installation  # noqa: F401
from .compiler import Compiled, compile, read_model
from .coverage import Coverage, CoverageError, UnquantizedTensor, coverage_of
from .ir.errors import DataError, DemandError, ModelError, QcError, UsageError, VerificationError
from .ir.weights import QuantizedWeight, Weights
from .named_pipelines import pipeline_names, resolve_pipeline
from .weights import read_weights, save_weights

__all__ = [
    "Compiled",
    "Coverage",
    "CoverageError",
    "DataError",
    "DemandError",
    "ModelError",
    "QcError",
    "QuantizedWeight",
    "UnquantizedTensor",
    "UsageError",
    "VerificationError",
    "Weights",
    "compile",
    "coverage_of",
    "pipeline_names",
    "read_model",
    "read_weights",
    "resolve_pipeline",
    "save_weights",
]
