"""Fourier transforms as products with waves compute what they did."""

from __future__ import annotations

import numpy as np
import pytest
from support.decomposed import agree, types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc

TURNED = ["Transpose", "MatMul", "Transpose"]


@pytest.mark.parametrize(
    ("given", "made", "call", "expected"),
    [
        ("2, 8, 1", "2, 8, 2", "DFT<axis = 1>(x)", ["MatMul"]),
        ("2, 8, 1", "2, 5, 2", "DFT<axis = 1, onesided = 1>(x)", ["MatMul"]),
        ("2, 8, 2", "2, 8, 2", "DFT<axis = 1, inverse = 1>(x)", ["MatMul"]),
        ("2, 8, 2", "2, 10, 2", "DFT<axis = 1>(x, longer)", ["MatMul"]),
        ("2, 8, 2", "2, 6, 2", "DFT<axis = 1, inverse = 1>(x, shorter)", ["MatMul"]),
        ("4, 8, 3, 2", "4, 8, 3, 2", "DFT<axis = 1>(x)", TURNED),
        ("4, 8, 3, 1", "3, 8, 3, 2", "DFT<axis = 0, onesided = 1>(x)", TURNED),
        ("2, N, 1", "2, N, 2", "DFT<axis = 1>(x)", ["DFT"]),
        ("1, 3000, 1", "1, 6, 2", "DFT<axis = 1>(x, shorter)", ["DFT"]),
    ],
)
def test_a_transform_of_a_known_length_is_a_product(
    given: str, made: str, call: str, expected: list[str]
) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{given}] x) => (float[{made}] y)
    <int64 longer = {{10}}, int64 shorter = {{6}}> {{ y = {call} }}""")
    found = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert [name for name in types(found) if name != "Reshape"] == expected
    agree(found, model)


@pytest.mark.parametrize("length", [None, 10, 15, 18])
def test_the_inverse_of_half_is_real(length: int | None) -> None:
    """Of nine places come 16 numbers, or as many as are wanted, where ONNX Runtime is wrong: numpy judges."""
    model = parse(f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[2, 9, 2] x) => (float[2, N, 1] y) <int64 length = {{{length or 0}}}, int64 axis = {{1}}> {{
        y = DFT<inverse = 1, onesided = 1>(x, {"length" if length else ""}, axis)
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert "MatMul" in types(made) and "DFT" not in types(made)
    (feed,) = random_feeds(model, 1)
    expected = np.fft.irfft(feed["x"][..., 0] + 1j * feed["x"][..., 1], length, axis=1)[..., None]
    np.testing.assert_allclose(run_model(made, feed)["y"], expected, atol=1e-5)


@pytest.mark.parametrize("sides", [0, 1])
@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ("2, 50, 1", "x, step, window"),
        ("1, 33", "x, step, , length"),
        ("1, 16, 1", "x, step, window"),
    ],
)
def test_a_transform_of_frames_is_a_convolution(shape: str, given: str, sides: int) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[{shape}] x) => (float[B, T, F, 2] y) <int64 step = {{5}}, int64 length = {{8}},
        float[8] window = {{0.1, 0.3, 0.7, 1, 1, 0.7, 0.3, 0.1}}
    > {{ y = STFT<onesided = {sides}>({given}) }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Reshape", "Conv", "Transpose", "Reshape"]
    agree(made, model, 1e-5)
