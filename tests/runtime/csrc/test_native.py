"""The kernels without Python, built with the sanitizers of the compiler; see native/main.cpp."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from support.folders import ROOT

from qc.runtime.native import kernels

CMAKE = shutil.which("cmake", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))


def output_of(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def skip_without(sanitizers: str, folder: Path) -> None:
    """Skips if the compiler lacks the library of one of the sanitizers, or this system cannot run it."""
    source = folder / "empty.cpp"
    source.write_text("int main() {}")
    build = subprocess.run(
        ["c++", f"-fsanitize={sanitizers}", str(source), "-o", str(folder / "empty")],
        capture_output=True,
        check=False,
    )
    if build.returncode:
        pytest.skip(f"this compiler has no sanitizers {sanitizers}")
    if subprocess.run([str(folder / "empty")], capture_output=True, check=False).returncode:
        pytest.skip(f"this system cannot run a program with the sanitizers {sanitizers}")


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_kernels_are_clean_and_right(sanitizers: str, tmp_path: Path) -> None:
    assert CMAKE, "cmake belongs to the development environment"
    skip_without(sanitizers, tmp_path)
    output_of(
        CMAKE,
        "-S",
        ROOT,
        "-B",
        tmp_path,
        f"-DQC_SANITIZE={sanitizers}",
        "-DQC_NATIVE_TEST=ON",
        "-DQC_CUDA=OFF",
    )
    output_of(CMAKE, "--build", tmp_path, "--target", "qc_kernel_test", "--parallel", "2")
    # Races do not depend on the instruction set, and are slow to look for.
    chosen = kernels.instruction_sets()[:1] if sanitizers == "thread" else ()
    assert "comparisons" in output_of(tmp_path / "qc_kernel_test", *chosen)
