"""The command that the action for GitHub runs: a good model passes, another one fails the job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT


@pytest.mark.parametrize(("metric", "code"), [("cosine", 0), ("equal", 5)])
def test_the_action_fails_below_a_metric(metric: str, code: int, tmp_path: Path) -> None:
    command = re.findall(r"run: (qc .*)", (ROOT / "action.yml").read_text(encoding="utf-8"))[0]
    settings = {
        "MODEL": str(ROOT / "tests/fixtures/digits_cnn.onnx"),
        "DATA": str(ROOT / "tests/fixtures/digits_calibration.npz"),
        "METRIC": metric,
        "MAX_DROP": "1%",
        "OUTPUT": "out.onnx",
        "OPTIONS": "--minutes 0.05",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        env={**os.environ, **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "out.onnx").exists() == (code == 0)
