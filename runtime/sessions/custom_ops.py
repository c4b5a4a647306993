"""Libraries of custom operators, which every session of this process and of those it starts loads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import onnxruntime as ort

from qc.ir.errors import UsageError

# Paths as in PATH. An environment variable, as workers in other processes need them, too.
VARIABLE = "QC_CUSTOM_OPS"


def use_custom_ops(libraries: Iterable[str | Path]) -> None:
    """Lets all sessions that are opened from here on know the operators of libraries.

    Args:
        libraries: shared libraries with ONNX Runtime's entry point ``RegisterCustomOps``. They are code,
            which runs in this process.

    Raises:
        UsageError: a library is not there, or ONNX Runtime does not take it.
    """
    for library in map(Path, libraries):
        _require(library)
        path = str(library.resolve())
        if path not in _libraries():
            _register(ort.SessionOptions(), path)
            os.environ[VARIABLE] = os.pathsep.join((*_libraries(), path))


def register_custom_ops(options: ort.SessionOptions) -> None:
    """Registers the libraries of :func:`use_custom_ops` in the options of a session.

    Raises:
        UsageError: a library is not there, or ONNX Runtime does not take it.
    """
    for path in _libraries():
        _require(Path(path), f", which {VARIABLE} names")
        _register(options, path)


def _libraries() -> list[str]:
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def _require(library: Path, origin: str = "") -> None:
    if not library.is_file():
        raise UsageError(f"there is no library of custom operators '{library}'{origin}")


def _register(options: ort.SessionOptions, path: str) -> None:
    try:
        options.register_custom_ops_library(path)
    except Exception as error:  # ONNX Runtime's own types, which have no common base
        said = " ".join(str(error).split())
        raise UsageError(f"ONNX Runtime cannot load the custom operators of '{path}': {said}") from error
