"""What float16 cannot hold stays in float32, if samples show it."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto
from support.models import parse
from support.pipelines import run_model
from support.placement import of_value, reason

import qc

GROWS = """g (float[N, 4] x) => (float[N, 4] y) <float scale = {1000.0}, float down = {0.001}> {
    a = Mul(x, scale)
    r = Transpose<perm = [1, 0]>(a)
    b = Mul(r, down)
    c = Transpose<perm = [1, 0]>(b)
    y = Neg(c)
}"""


def _feeds(largest: float) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(-1, 1, (3, 4)).astype(np.float32)} for _ in range(4)]
    feeds[2]["x"][1, 1] = -largest
    return feeds


def _compiled(feeds: list[dict[str, np.ndarray]] | None, model: ModelProto | None = None) -> qc.Compiled:
    return qc.compile(model or parse(GROWS), "fp16", data=feeds, threads=1)


def test_what_becomes_infinite_stays_in_float() -> None:
    feeds = _feeds(largest=300)
    compiled = _compiled(feeds)
    assert of_value(compiled.ir, "a") is None and of_value(compiled.ir, "x") is not None
    assert reason(compiled.ir, "a") == "reaches 3e+05 in samples, which float16 has not"
    assert any("would become infinite in 16-bit floats" in note for note in compiled.notes)
    found, expected = (run_model(model, feeds[2])["y"] for model in (compiled.model, parse(GROWS)))
    np.testing.assert_allclose(found, expected, rtol=2**-9)


def test_what_does_not_is_rounded() -> None:
    assert of_value(_compiled(_feeds(largest=60)).ir, "a") is not None
    assert of_value(_compiled(None).ir, "a") is not None, "without data nothing is known"


def test_of_infinities_that_are_there_in_float_a_note_tells() -> None:
    model = parse(GROWS.replace("b = Mul(r, down)", "b = Log(r)"))
    compiled = _compiled([{"x": np.zeros((3, 4), np.float32)}] * 2, model)
    assert of_value(compiled.ir, "a") is not None
    assert any(
        note.startswith("whether all numbers stay within float16 is not known") for note in compiled.notes
    )
