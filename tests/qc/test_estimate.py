"""The summary of a compilation tells of outputs that have little left, and of ``qc auto``."""

from __future__ import annotations

import pytest

MODEL, DATA = "model.onnx", "calibration.npz"


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        (["--data", DATA], False),
        (["--data", DATA, "--set", "Conv=w2"], True),
        (["--data", DATA, "--set", "Conv=w2", "--quiet"], False),
        (["--random-data", "2", "--set", "Conv=w2"], False),
    ],
)
def test_outputs_of_which_little_is_left_are_told_of(qc, options: list[str], is_told: bool) -> None:
    result = qc(MODEL, *options, "--threads", "1")
    assert result.code == 0
    assert ("dB beside the float model, which may be too little: 'qc auto'" in result.err) == is_told
