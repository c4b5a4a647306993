"""``Rounding.HALF_UP`` is what AIMET's simulation computes, on vectors kept here and on fresh ones.

The fresh ones need an environment with aimet-onnx 2.42: ``QC_AIMET_PYTHON`` names its Python.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.folders import AIMET

from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.runtime.native import kernels


def assert_rounds_as_aimet(file: Path) -> None:
    """The definition and the kernel give AIMET's answers in every case of the file."""
    with np.load(file) as stored:
        cases = [stored[name] for name in ("bits", "scale", "offset", "x", "y")]
    assert len(cases[0])
    for bits, scale, offset, x, y in zip(*cases, strict=True):
        spec = QuantSpec(IntFormat(int(bits), signed=False))
        encoding = Encoding(spec, np.asarray(scale), np.asarray(-offset))
        for rounded in (arithmetic.fake_quantize, kernels.fake_quantize):
            ours = rounded(x, encoding, Rounding.HALF_UP)
            np.testing.assert_array_equal(ours.view(np.uint32), y.view(np.uint32), err_msg=f"{bits} {offset}")


@pytest.mark.parametrize("instruction_set", kernels.instruction_sets())
def test_ties_go_up_as_in_aimet(instruction_set: str) -> None:
    kernels.use_instruction_set(instruction_set)
    try:
        assert_rounds_as_aimet(AIMET / "rounding.npz")
    finally:
        kernels.use_instruction_set(kernels.instruction_sets()[0])


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
def test_fresh_ties_go_up_as_in_aimet(tmp_path: Path) -> None:
    file = tmp_path / "rounding.npz"
    script = AIMET / "make_rounding.py"
    subprocess.run([os.environ["QC_AIMET_PYTHON"], str(script), str(file), "3000"], check=True)
    assert_rounds_as_aimet(file)
