"""The example that mixes AdaRound and precision."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "adaround_mixed" / "adaround_mixed.py"


def test_mixed_precision_with_adaround(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path / "made"), "--precision-first"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = {name: float(share) for name, share in re.findall(r"(\w+) +([\d.]+)", done.stdout)}
    assert found["exact"] > 0.95 and found["nearest"] < 0.93 * found["exact"]
    for name in ("learned", "reloaded", "qdq"):
        assert found[name] > 0.97 * found["exact"]
    assert found["reloaded"] == found["learned"]
