"""The memory that running a model takes, measured in a process of its own.

    python -m qc.runtime.speed.footprint < a pickled request

A process knows its peak only as a whole, and one that is started begins with the peak of the one that started
it. So a new interpreter imports what it needs, notes what it holds, opens the model, runs it a few times, and
tells how far its memory rose in between.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from qc.ir.errors import ModelError, QcError
from qc.ir.executor import Feed

from ..sessions.custom_ops import register_custom_ops
from ..sessions.failures import explain_load
from ..sessions.open import open_session, run_session

_RUNS = 3
_STATUS = Path("/proc/self/status")
_SILENT = 4


@dataclass(frozen=True)
class _Request:
    """What the process is to do. ``needs_qc`` tells whether the model holds ops of qc's library."""

    path: Path
    feed: Feed
    threads: int
    needs_qc: bool


def peak_memory(path: Path, feed: Feed, *, threads: int, needs_qc: bool) -> int | None:
    """The bytes by which opening and running a model raises the peak of resident memory.

    ONNX Runtime reads the file itself, as it does in any application. Only a simulation, which needs qc's
    ops, is opened by :func:`qc.runtime.open_session`, which holds the model for a moment while it does.

    Args:
        path: the file of the model.
        feed: one set of inputs.
        threads: threads within an op.
        needs_qc: whether the model holds ops of qc.

    Returns:
        The bytes; None where the operating system does not tell.

    Raises:
        ModelError: the model does not run, or the process came to an end.
    """
    request = pickle.dumps(_Request(path.absolute(), dict(feed), threads, needs_qc))
    command = [sys.executable, "-m", "qc.runtime.speed.footprint"]
    done = subprocess.run(command, input=request, capture_output=True, check=False)
    if done.returncode:
        ending = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise ModelError(f"the process that measures the memory of '{path}' ended with {ending}")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise ModelError(f"'{path}' cannot be run to measure its memory: {answer['error']}")
    return int(answer["bytes"]) if answer["bytes"] is not None else None


def _measure(request: _Request) -> int | None:
    before = _memory("VmRSS")
    if request.needs_qc:
        session = open_session(request.path, threads=request.threads)
    else:
        session = _open_plainly(request)
    for _ in range(_RUNS):
        run_session(session, request.feed)
    after = _memory("VmHWM")
    return max(after - before, 0) if before is not None and after is not None else None


def _open_plainly(request: _Request) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.log_severity_level = _SILENT
    register_custom_ops(options)
    try:
        return _session(request.path, options)
    except Exception as error:  # ONNX Runtime's exceptions have no base of their own
        if request.path.is_symlink():  # it looks for external data beside the link only
            with suppress(Exception):
                return _session(request.path.resolve(), options)
        raise ModelError(explain_load(str(error))) from error


def _session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _memory(field: str) -> int | None:
    """A line of Linux's status of this process in bytes; elsewhere the peak so far, if there is one."""
    if _STATUS.is_file():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(lines[field].split()[0]) * 1024
    try:
        import resource
    except ImportError:  # on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _main() -> None:
    request = pickle.load(sys.stdin.buffer)
    try:
        answer: dict[str, object] = {"bytes": _measure(request)}
    except QcError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
