"""The scripts of ``examples/from-aimet``, which run unchanged on AIMET and on qc.

Where ``QC_AIMET_PYTHON`` names a Python with aimet-onnx 2.42, they run there as well.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import ROOT

FOLDER = ROOT / "examples" / "from-aimet"
AIMET = os.environ.get("QC_AIMET_PYTHON", "")
SCRIPTS = ("quantsim_export", "adaround_mixed", "block_weights")


def shares(python: list[str], script: str, output: Path) -> dict[str, float]:
    """The share of digits that each model of a script knows."""
    command = [*python, str(FOLDER / f"{script}.py"), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=output)
    assert done.returncode == 0, done.stderr
    return {name: float(share) for name, share in re.findall(r"^(\w+) +([\d.]+)$", done.stdout, re.MULTILINE)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_of_aimet_run_unchanged(script: str, tmp_path: Path) -> None:
    found = shares([sys.executable, "-m", "qc.compat.aimet_onnx"], script, tmp_path)
    assert found["float"] > 0.95
    if script == "quantsim_export":
        assert found["simulated"] == found["reloaded"] > 0.95 and found["qdq"] > 0.95
    if script == "adaround_mixed":
        assert found["learned"] == found["reloaded"] > max(0.93, found["nearest"] + 0.03)
    if script == "block_weights":
        assert found["channels"] + 0.03 < found["lpbq"] <= found["blocks"] + 0.01
    if AIMET:
        theirs = shares([AIMET], script, tmp_path)
        for name, share in theirs.items():
            assert found[name] >= share - 0.01, (name, found, theirs)
