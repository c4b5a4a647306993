"""Libraries of custom operators, which every session of this process loads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnxruntime as ort

from qc.ir.errors import UsageError

_LIBRARIES: dict[str, None] = {}


def use_custom_ops(libraries: Iterable[str | Path]) -> None:
    """Lets all sessions that are opened from here on know the operators of libraries.

    Args:
        libraries: shared libraries with ONNX Runtime's entry point ``RegisterCustomOps``. They are code,
            which runs in this process.

    Raises:
        UsageError: a library is not there, or ONNX Runtime does not take it.
    """
    for library in map(Path, libraries):
        if not library.is_file():
            raise UsageError(f"there is no library of custom operators '{library}'")
        try:
            ort.SessionOptions().register_custom_ops_library(str(library.resolve()))
        except Exception as error:  # ONNX Runtime's own types, which have no common base
            raise UsageError(
                f"ONNX Runtime cannot load the custom operators of '{library}': {error}"
            ) from error
        _LIBRARIES[str(library.resolve())] = None


def register_custom_ops(options: ort.SessionOptions) -> None:
    """Registers the libraries of :func:`use_custom_ops` in the options of a session."""
    for library in _LIBRARIES:
        options.register_custom_ops_library(library)
