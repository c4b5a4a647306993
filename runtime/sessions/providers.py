"""The processors that models run on, by the execution providers of ONNX Runtime."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
from typing import Any

import onnxruntime as ort
from onnx import TensorProto, helper

from qc.ir.errors import QcError, UsageError, nearest

from ..native.library import library_path

PROVIDERS = ("cpu", "cuda", "auto")

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"

# Results are to be those of float32, and the same in every run. ONNX Runtime would round the factors of
# convolutions to 10 bits of mantissa, and choose algorithms by how long they take.
_CUDA_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}

_NOT_LOADED = (
    "ONNX Runtime cannot load its part for CUDA, as libraries of CUDA or cuDNN are missing or have "
    "another version; install them by: pip install 'onnxruntime-gpu[cuda,cudnn]'"
)
_WARNING, _FATAL = 2, 4  # severities of ONNX Runtime's messages


def choose_provider(name: str) -> str:
    """``"cpu"`` or ``"cuda"``; of ``"auto"``, ``"cuda"`` where it can be used.

    Raises:
        UsageError: there is no provider of that name.
        QcError: CUDA is asked for but cannot be used here; the sentence says what to do about it.
    """
    if name not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        similar = " (did you mean 'cuda'?)" if name.lower() == "gpu" else nearest(name, list(PROVIDERS))
        raise UsageError(f"unknown device '{name}'{similar}; known: {known}")
    if name == "auto":
        return "cpu" if missing_for_cuda() else "cuda"
    if name == "cuda" and (missing := missing_for_cuda()):
        raise QcError(f"CUDA cannot be used: {missing}")
    return name


@functools.cache
def missing_for_cuda() -> str:
    """Why CUDA cannot be used here, and what to do about it; empty if it can."""
    if _CUDA not in ort.get_available_providers():
        return (
            "the installed ONNX Runtime is without it; install the other one by: "
            "pip uninstall onnxruntime onnxruntime-gpu, then: pip install 'onnxruntime-gpu[cuda,cudnn]'"
        )
    try:
        library = ctypes.CDLL(str(library_path(cuda=True)))
    except QcError as error:
        return str(error)
    library.qc_cuda_failure.restype = ctypes.c_char_p
    failure: bytes | None = library.qc_cuda_failure()
    if failure:
        return f"there is no GPU, or it or its driver does not fit qc's library: {failure.decode()}"
    try:
        return "" if runs_on_cuda(_smallest_session()) else _NOT_LOADED
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        return f"ONNX Runtime cannot start on the GPU: {error}"


def _smallest_session() -> ort.InferenceSession:
    """A session for CUDA; ONNX Runtime leaves out its part for CUDA if it cannot be loaded."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [])
    graph = helper.make_graph([], "smallest", [value], [value])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    ort.set_default_logger_severity(_FATAL)  # what it says of its libraries is not a session's
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=session_providers("cuda"), enable_fallback=0
        )
    finally:
        ort.set_default_logger_severity(_WARNING)


def session_providers(provider: str) -> list[Any]:
    """The argument ``providers`` of an ``InferenceSession``. What CUDA has no kernels for runs on the CPU."""
    if provider == "cpu":
        return [_CPU]
    if hasattr(ort, "preload_dlls"):  # finds the libraries of CUDA that pip installed
        with contextlib.redirect_stdout(io.StringIO()):  # what is missing is told by check_provider
            ort.preload_dlls()
    return [(_CUDA, _CUDA_OPTIONS), _CPU]


def check_provider(session: ort.InferenceSession, provider: str) -> None:
    """Raises QcError if ONNX Runtime left out the provider, which it does in silence."""
    if provider == "cuda" and not runs_on_cuda(session):
        raise QcError(_NOT_LOADED)


def runs_on_cuda(session: ort.InferenceSession) -> bool:
    """Whether a session runs on a GPU, as far as there are kernels."""
    return _CUDA in session.get_providers()
