"""Where the native library of qc is: the operators for ONNX Runtime and the kernels below them."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from pathlib import Path

from qc.ir.errors import QcError

# The domain of qc's operators.
QC_DOMAIN = "qc"

_DISTRIBUTION = "qc-onnx"
_NAME = f"libqc_runtime.{'dylib' if sys.platform == 'darwin' else 'so'}"


@functools.cache
def library_path() -> Path:
    """The absolute path of the shared library, for ``SessionOptions.register_custom_ops_library``.

    It lies beside this file, except after an editable installation: then this file stays in the source
    tree, the library goes where packages are installed, and the record of the installation names it.

    Raises:
        QcError: the library was not built.
    """
    beside = Path(__file__).with_name(_NAME)
    for candidate in [beside, *_recorded()]:
        if candidate.is_file():
            return candidate
    raise QcError(
        f"the native library of qc ({_NAME}) is missing; install qc again, with a C++ compiler present, "
        f"by: pip install {_DISTRIBUTION}, or in a source tree: pip install -e ."
    )


def _recorded() -> list[Path]:
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).resolve() for file in files if file.name == _NAME]
