"""The operators for CUDA, compiled for the processor: tests run them where there is no GPU.

Kernels are compiled by the C++ compiler with a stand-in for the header of CUDA (cuda_runtime.h beside this
file), and offered to the execution provider of the CPU.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ..folders import ROOT

_HERE = Path(__file__).parent
_CSRC = ROOT / "runtime" / "csrc"
_SOURCES = (
    _HERE / "operators.cpp",
    *(_CSRC / f"{name}.cpp" for name in ("registration", "fake_quantize", "observe", "element_loops")),
    *(_CSRC / f"{name}.cpp" for name in ("instruction_sets", "sum_loops", "squared_error_loops")),
    *(_CSRC / "cuda" / name for name in ("cuda_ops.cpp", "fake_quantize.cu", "observe.cu")),
)
# What is undefined ends the process. CUDA reads the memory of floats as integers, so types may share memory.
_OPTIONS = [
    *("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-fsanitize=undefined", "-fno-sanitize-recover=all"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-DQC_INSTRUCTION_SET=baseline"),
    *("-DQC_BASELINE=baseline", "-DQC_FLAT="),
]


@functools.cache
def build_cuda_on_host() -> Path:
    """The library; it is built once for every state of the sources. Skips the test without a compiler."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    digest = hashlib.sha256(" ".join(_OPTIONS).encode())
    for path in sorted((*_HERE.glob("*.*"), *_CSRC.rglob("*.*"))):
        digest.update(path.read_bytes())
    library = ROOT / "build" / "cuda-on-host" / f"{digest.hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}.so")
        sources = map(str, _SOURCES)
        subprocess.run(
            [compiler, *_OPTIONS, f"-I{_HERE}", "-x", "c++", *sources, "-o", str(unfinished)], check=True
        )
        unfinished.replace(library)
    return library
