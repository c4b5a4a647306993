"""The build where no CUDA compiler works: the library for the CPU is built, and the reason is said."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.folders import ROOT

pytestmark = pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("c++")), reason="there is no cmake or no C++ compiler"
)


def configure(folder: Path, option: str) -> subprocess.CompletedProcess[str]:
    """Configures a build with a compiler for CUDA that fails."""
    broken = folder / "nvcc"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    return subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(folder / "build"), f"-DQC_CUDA={option}"],
        env=os.environ | {"CUDACXX": str(broken)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_broken_compiler_leaves_the_library_out(tmp_path: Path) -> None:
    done = configure(tmp_path, "AUTO")
    assert done.returncode == 0, done.stderr
    assert "qc is built without CUDA: no working CUDA compiler (nvcc) was found." in done.stdout


def test_a_broken_compiler_is_an_error_if_the_library_is_asked_for(tmp_path: Path) -> None:
    done = configure(tmp_path, "ON")
    assert done.returncode != 0
    assert "qc cannot be built with CUDA: no working CUDA compiler (nvcc) was found." in " ".join(
        done.stderr.split()
    )


def test_another_word_is_refused(tmp_path: Path) -> None:
    done = configure(tmp_path, "maybe")
    assert "QC_CUDA is 'maybe' but must be ON, OFF or AUTO." in done.stderr
