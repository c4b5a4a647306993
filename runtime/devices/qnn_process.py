"""A model on the HTP's emulator, in the process that :mod:`qc.runtime.devices.process` makes for it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from qc.ir.errors import ModelError, UsageError
from qc.ir.executor import Feed

from .process import Run

_VERBOSE, _SILENT = 0, 4
# What ONNX Runtime says where a node is left for the CPU and must not be.
_LEFT = re.compile(r"This session contains graph nodes that are assigned to the default CPU EP")


@dataclass(frozen=True)
class Request:
    """What to open.

    Attributes:
        path: the file of the model.
        log: the file for what ONNX Runtime and the provider say.
        options: options of the provider.
        may_use_cpu: whether the CPU may run what the HTP refuses.
        context: the file for the model as the HTP's compiler made it; None if it is not wanted.
        dlc: the folder for the graph as a deep learning container; None if it is not wanted.
    """

    path: Path
    log: Path
    options: dict[str, str]
    may_use_cpu: bool
    context: Path | None = None
    dlc: Path | None = None


def opened(request: Request) -> Run:
    """Opens a model, and gives what runs it.

    Raises:
        ModelError: the HTP refuses the model.
        UsageError: the provider cannot be used with the ONNX Runtime that is installed, or lacks an option.
    """
    qnn: Any = importlib.import_module("onnxruntime_qnn")
    _refuse_unknown(request.options, Path(qnn.get_library_path()))
    try:
        ort.register_execution_provider_library(qnn.EP_NAME, qnn.get_library_path())
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        versions = f"onnxruntime-qnn {qnn.__version__} does not work with onnxruntime {ort.__version__}"
        raise UsageError(f"{versions}, install another version: {_plain(error)}") from error
    devices = [device for device in ort.get_ep_devices() if device.ep_name == qnn.EP_NAME]
    options = ort.SessionOptions()
    options.log_severity_level = _VERBOSE
    if not request.may_use_cpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if request.context is not None:
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", str(request.context))
        options.add_session_config_entry("ep.context_embed_mode", "1")
    # Without, the CPU rounds what goes in and out.
    provider = {
        "backend_path": qnn.get_qnn_htp_path(),
        "offload_graph_io_quantization": "0",
        **request.options,
    }
    if request.dlc is not None:
        backend = Path(qnn.get_qnn_htp_path()).with_name("libQnnIr.so")
        provider |= {"dump_qnn_ir_dlc": "1", "dump_qnn_ir_dlc_dir": str(request.dlc)}
        provider |= {"qnn_ir_backend_path": str(backend)}
    try:
        options.add_provider_for_devices(devices, provider)
        session = ort.InferenceSession(str(request.path), options)
    except Exception as error:
        if _LEFT.search(str(error)):
            raise ModelError("the HTP does not run all nodes; 'qc check' tells which and why") from error
        hint = "" if request.may_use_cpu else "; 'qc check' looks for the ops at fault"
        raise ModelError(f"the HTP gives the model up: {_plain(error)}{hint}") from error
    return lambda feed: _run(session, feed)


def _run(session: ort.InferenceSession, feed: Feed) -> list[Any]:
    options = ort.RunOptions()
    options.log_severity_level = _SILENT
    try:
        return list(session.run(None, feed, options))
    except Exception as error:
        raise ModelError(f"the HTP failed to run the model: {_plain(error)}") from error


def _refuse_unknown(options: Mapping[str, str], library: Path) -> None:
    """Raises UsageError for options whose names the library does not hold: the provider passes over them."""
    code = library.read_bytes() if options else b""
    for name in options:
        if f"{name}\0".encode() not in code:
            raise UsageError(f"qnn-htp has no device option '{name}'")


def _plain(error: Exception) -> str:
    """The message on one line, without codes of errors and the places in the source."""
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    return re.sub(r"\S+\.(?:h|cc|cpp):\d+ \S+ ", "", text)
