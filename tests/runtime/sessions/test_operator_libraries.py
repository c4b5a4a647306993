"""Libraries of custom operators: every session of a command registers them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.graph_text import build_model

import qc
from qc.cli.run import run
from qc.runtime import open_session, use_custom_ops
from qc.runtime.sessions.custom_ops import VARIABLE

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
void* RegisterCustomOps(void* options, const void* api) {
    FILE* file = fopen(getenv("QC_TEST_CALLS"), "a");
    fputs("call\\n", file);
    fclose(file);
    return 0;  /* no error */
}
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that takes down each time that it is registered."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "ops.c").write_text(SOURCE)
    made = tmp_path / "libops.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, tmp_path / "ops.c"], check=True)
    monkeypatch.setenv("QC_TEST_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv(VARIABLE, "")
    return made


def calls(library: Path) -> int:
    return len((library.parent / "calls").read_text().splitlines())


def test_sessions_register_libraries(library: Path) -> None:
    model = build_model("y = Relu(x)", "y")
    use_custom_ops([library])
    use_custom_ops([str(library)])  # known already
    before = calls(library)
    open_session(model)
    assert calls(library) == before + 1


def test_the_command_line_takes_libraries(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = build_model("y = MatMul(x, W)", "y", constants={"W": np.eye(8)})
    path.write_bytes(model.SerializeToString())
    options = ["--random-data", "2", "--custom-ops", str(library)]
    assert run([str(path), *options, "-o", str(tmp_path / "out.onnx")]) == 0
    assert calls(library) > 1  # once to try it, and once for each session


@pytest.mark.parametrize(
    "content, sentence",
    [(None, "there is no library of custom operators"), (b"text", "cannot load the custom operators of")],
)
def test_what_is_no_library(
    content: bytes | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "ops.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(qc.UsageError, match=sentence):
        use_custom_ops([path])
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(qc.UsageError, match=sentence) as refused:
        open_session(build_model("y = Relu(x)", "y"))
    assert content is not None or str(refused.value).endswith(f"'{path}', which QC_CUSTOM_OPS names")
