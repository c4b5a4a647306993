"""qc: a quantization compiler for ONNX.

``qc.compile(model, "w8a8", data=feeds)`` does the whole job; the pieces below it are ``qc.ir`` (the graph),
``qc.patterns`` (supergroups), ``qc.passes`` (the passes and pipelines) and ``qc.runtime`` (sessions, data,
statistics, evaluation).
"""

from . import _starting, _installation  # noqa: F401, I001  (interrupts are caught from here on)
from .checking import Check, CheckedOp, check
from .compiled import Compiled
from .compilation import Compilation
from .compiling import compile, compile_for, observe
from .coverage import Coverage, CoverageError, UnquantizedTensor, coverage_of
from qc.ir.errors import DataError, DemandError, ModelError, QcError, UsageError, VerificationError
from qc.ir.facts.weights import QuantizedWeight, Weights
from .named_pipelines import pipeline_names, resolve_pipeline
from qc.passes.quantize.set_precision import set_precision
from .reading import read_model
from qc.runtime import SimulatedQuantizer, Simulation
from .sensitivity import QuantizerSensitivity, Sensitivity, measure_sensitivity
from .weights import read_weights, save_weights

__all__ = [
    "Check",
    "CheckedOp",
    "Compilation",
    "Compiled",
    "Coverage",
    "CoverageError",
    "DataError",
    "DemandError",
    "ModelError",
    "QcError",
    "QuantizedWeight",
    "QuantizerSensitivity",
    "Sensitivity",
    "SimulatedQuantizer",
    "Simulation",
    "UnquantizedTensor",
    "UsageError",
    "VerificationError",
    "Weights",
    "check",
    "compile",
    "compile_for",
    "coverage_of",
    "measure_sensitivity",
    "observe",
    "pipeline_names",
    "read_model",
    "read_weights",
    "resolve_pipeline",
    "save_weights",
    "set_precision",
]
