"""What AdaRound and sequential MSE leave of the outputs, beside what AIMET's leave.

AIMET's errors were measured with aimet-onnx 2.42 on the networks of ``benches/aimet_weights.py``. They are
measured again where ``QC_AIMET_PYTHON`` names a Python that has it.
"""

from __future__ import annotations

import os
from types import ModuleType

import pytest
from support.benches import import_bench

# The share of the outputs' energy that is error.
AIMET = {
    ("plain", "adaround"): 0.0261,
    ("plain", "seq_mse"): 0.00605,
    ("depthwise", "adaround"): 0.0169,
    ("depthwise", "seq_mse"): 0.0102,
    ("products", "adaround"): 0.029,
    ("products", "seq_mse"): 0.0198,
}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The bench that runs AIMET beside qc."""
    return import_bench("aimet_weights")


@pytest.mark.parametrize(("name", "method"), list(AIMET))
def test_no_more_is_lost_than_with_aimet(bench: ModuleType, name: str, method: str) -> None:
    model = bench.network(name)
    error, _ = bench.of_qc(model, bench.feeds_of(model), method)
    assert error <= 1.05 * AIMET[name, method]


@pytest.mark.skipif("QC_AIMET_PYTHON" not in os.environ, reason="QC_AIMET_PYTHON names no Python with AIMET")
def test_the_errors_of_aimet(bench: ModuleType) -> None:
    with bench.Aimet(os.environ["QC_AIMET_PYTHON"]) as aimet:
        for (name, method), expected in AIMET.items():
            model = bench.network(name)
            error, _ = bench.of_aimet(aimet, model, bench.feeds_of(model), method)
            assert error == pytest.approx(expected, rel=0.2), (name, method)
