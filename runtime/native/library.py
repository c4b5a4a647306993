"""Where the native libraries of qc are: the operators for ONNX Runtime and the kernels below them."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import platform
import struct
import sys
from pathlib import Path

from qc.ir.errors import QcError

# The domain of qc's operators.
QC_DOMAIN = "qc"

_DISTRIBUTION = "qc-onnx"
_SUFFIX = "dylib" if sys.platform == "darwin" else "so"


# The version of the library's functions and operators; csrc/c_api.cpp has the same number.
_INTERFACE = 7

_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


@functools.cache
def library_path(cuda: bool = False) -> Path:
    """The absolute path of a shared library, for ``SessionOptions.register_custom_ops_library``.

    It lies beside this file, except after an editable installation: then this file stays in the source
    tree, the library goes where packages are installed, and the record of the installation names it.

    Args:
        cuda: the library that has the operators for CUDA as well as those for the CPU.

    Raises:
        QcError: the library was not built, cannot be loaded here, or belongs to another version of qc.
    """
    name = f"libqc_runtime{'_cuda' if cuda else ''}.{_SUFFIX}"
    for candidate in [Path(__file__).with_name(name), *_recorded(name)]:
        if candidate.is_file():
            check_library(candidate)
            return candidate
    compiler = "CUDA's compiler (nvcc)" if cuda else "a C++ compiler"
    raise QcError(f"the native library of qc ({name}) is missing; {_again(compiler)}")


def _again(compiler: str = "a C++ compiler") -> str:
    return (
        f"install qc again, with {compiler} present, by: pip install {_DISTRIBUTION}, "
        "or in a source tree: pip install -e ."
    )


def check_library(path: Path) -> None:
    """Raises QcError unless ``path`` is a library for this machine and this version of qc."""
    defect = _elf_defect(path) if sys.platform == "linux" else None
    if defect is None:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            defect = f"cannot be loaded ({error})"
        else:
            defect = _version_defect(library)
    if defect:
        raise QcError(f"the native library of qc ({path}) {defect}; {_again()}")


def _elf_defect(path: Path) -> str | None:
    """What is wrong with a file before anything of it is run: loading a file cut short ends the process.

    The header is that of the System V ABI: bytes 16 to 63 hold, among others, the machine and where the table
    of sections is, which linkers put last.
    """
    with path.open("rb") as file:
        header = file.read(64)
        size = file.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return "is not a shared library"
    order = "<" if header[5] == 1 else ">"
    machine, sections, each, count = struct.unpack(f"{order}18xH20xQ10xHH2x", header)
    ours = _ELF_MACHINES.get(platform.machine())
    if ours is not None and (header[4], machine) != (2, ours):
        return f"was built for another kind of processor than this {platform.machine()}"
    if sections + each * count > size:
        return "is cut short"
    return None


def _version_defect(library: ctypes.CDLL) -> str | None:
    try:
        found = library.qc_interface()
    except AttributeError:
        return "is not that of this version of qc: it does not tell its version"
    if found != _INTERFACE:
        return f"is not that of this version of qc: it has interface {found} instead of {_INTERFACE}"
    return None


def _recorded(name: str) -> list[Path]:
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).resolve() for file in files if file.name == name]
