"""Small constants of which float16 makes zero stay in float32, with what is computed of them."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse
from support.pipelines import run_model
from support.placement import of_value, reason

import qc

LOG = """g (float[1, 4] x) => (float[1, 4] y) <float tiny = {%s}> {
    s = Mul(x, x)
    a = Add(s, tiny)
    m = Transpose<perm = [1, 0]>(a)
    l = Log(m)
    y = Transpose<perm = [1, 0]>(l)
}"""
X = {"x": np.array([[0, 1e-4, 0.1, 2]], np.float32)}


@pytest.mark.parametrize("data", [None, [X]])
def test_what_keeps_a_logarithm_finite_stays_in_float(data: list[dict[str, np.ndarray]] | None) -> None:
    model = parse(LOG % "1e-10")
    compiled = qc.compile(model, "fp16", data=data, threads=1)
    for kept in ("tiny", "s", "a", "m"):
        assert of_value(compiled.ir, kept) is None, kept
    assert of_value(compiled.ir, "l") is not None and of_value(compiled.ir, "x") is not None
    assert reason(compiled.ir, "tiny") == "float16 makes zero of it"
    assert reason(compiled.ir, "m") == "is computed with 'tiny', of which float16 makes zero"
    assert any("'tiny' would become zero in 16-bit floats" in note for note in compiled.notes)
    found, expected = (run_model(one, X)["y"] for one in (compiled.model, model))
    np.testing.assert_allclose(found, expected, rtol=2**-9)


def test_what_float16_has_is_rounded() -> None:
    compiled = qc.compile(parse(LOG % "1e-5"), "fp16", threads=1)
    assert of_value(compiled.ir, "a") is not None and of_value(compiled.ir, "s") is not None
    assert compiled.notes == []


def test_weights_are_no_such_constants() -> None:
    model = parse("g (float[1, 2] x) => (float[1, 1] y) <float[2, 1] w = {1e-9, 2e-9}> { y = MatMul(x, w) }")
    assert qc.compile(model, "fp16", threads=1).notes == []
