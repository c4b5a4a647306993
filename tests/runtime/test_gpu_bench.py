"""The bench for GPUs, which is rarely run where there is one, on the CPU."""

from __future__ import annotations

import subprocess
import sys

from support.folders import ROOT

BENCH = ROOT / "benches" / "cuda.py"


def test_the_bench_prints_a_row_for_every_operator_and_network() -> None:
    arguments = ["mobilenetv2", "--provider", "cpu", "--batch", "1", "--elements", "65536", "--rounds", "2"]
    found = subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stderr  # 1 where a kernel is slower than its limit
    for row in (
        "Neg",
        "FakeQuantize, half zeros",
        "FakeQuantize, 64 channels",
        "Observe, histogram",
        "mobilenetv2",
    ):
        assert row in found.stdout
