"""The process that holds a model on the HTP's emulator.

It reads pickled requests and writes pickled answers. The first request opens a model; each further one is a
feed. What native code writes goes to the log.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

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


@dataclass(frozen=True)
class Answer:
    """The outputs of a run, or a sentence for what went wrong."""

    outputs: list[Any] = field(default_factory=list)
    failure: str = ""
    wrong_version: bool = False


def serve() -> None:
    """Answers requests until there are no more."""
    threading.Thread(target=_end_with_caller, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as answers:
        request: Request = pickle.load(sys.stdin.buffer)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        session, answer = _opened(request)
        while True:
            pickle.dump(answer, answers)
            answers.flush()
            try:
                feed = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            assert session is not None
            answer = _run(session, feed)


def _end_with_caller(caller: int) -> None:
    """Ends this process once the one that asks is no more, also while the emulator computes for minutes."""
    while os.getppid() == caller:
        time.sleep(1)
    os._exit(1)


def _opened(request: Request) -> tuple[ort.InferenceSession | None, Answer]:
    qnn: Any = importlib.import_module("onnxruntime_qnn")
    try:
        ort.register_execution_provider_library(qnn.EP_NAME, qnn.get_library_path())
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        versions = f"onnxruntime-qnn {qnn.__version__} does not work with onnxruntime {ort.__version__}"
        return None, Answer(
            failure=f"{versions}, install another version: {_plain(error)}", wrong_version=True
        )
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
        return ort.InferenceSession(str(request.path), options), Answer()
    except Exception as error:
        if _LEFT.search(str(error)):
            return None, Answer(failure="the HTP does not run all nodes; 'qc check' tells which and why")
        hint = "" if request.may_use_cpu else "; 'qc check' looks for the ops at fault"
        return None, Answer(failure=f"the HTP gives the model up: {_plain(error)}{hint}")


def _run(session: ort.InferenceSession, feed: dict[str, np.ndarray]) -> Answer:
    options = ort.RunOptions()
    options.log_severity_level = _SILENT
    try:
        return Answer(session.run(None, feed, options))
    except Exception as error:
        return Answer(failure=f"the HTP failed to run the model: {_plain(error)}")


def _plain(error: Exception) -> str:
    """The message on one line, without codes of errors and the places in the source."""
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    return re.sub(r"\S+\.(?:h|cc|cpp):\d+ \S+ ", "", text)
