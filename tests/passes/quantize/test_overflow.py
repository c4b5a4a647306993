"""What float16 cannot hold stays in float32, if samples show it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import run_model
from support.placement import of_value, reason

import qc
from qc.ir.errors import DataError

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


def _compiled(feeds: Iterable[dict[str, np.ndarray]] | None, model: ModelProto | None = None) -> qc.Compiled:
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


def test_infinities_that_are_there_in_float_tell_nothing() -> None:
    model = parse(GROWS.replace("b = Mul(r, down)", "b = Log(r)"))
    compiled = _compiled([{"x": np.zeros((3, 4), np.float32)}] * 2, model)
    assert of_value(compiled.ir, "a") is not None and compiled.notes == []


@pytest.mark.parametrize("pipeline", ["w8a8", "quantsim-qdq"])
def test_all_readers_of_what_becomes_infinite_read_float(pipeline: str) -> None:
    model = parse("""g (float[4, 4] x) => (float[4, 4] y, float[4, 4] z)
    <float[4, 4] v, float[4, 4] w, float scale = {1000000.0}> {
        a = Mul(x, scale)  y = MatMul(a, v)  z = MatMul(a, w)
    }""")
    feeds = random_feeds(model, 4)
    made = qc.compile(model, pipeline, data=feeds, target="npu", precision=["MatMul=float16"], threads=1)
    for found in run_model(made.model, feeds[0]).values():
        assert np.isfinite(found).all()


def test_data_that_does_not_fit_is_an_error_and_data_that_is_read_once_a_note() -> None:
    with pytest.raises(DataError, match="'z'"):
        _compiled([{"z": np.zeros((3, 4), np.float32)}])
    notes = _compiled(iter(_feeds(largest=300))).notes
    assert notes == ["whether all numbers stay within float16 is not known: the data can be read only once"]


def test_a_moved_constant_that_float16_has_not_stays_in_float() -> None:
    model = parse("""g (float[2, 4] x) => (float[2, 4] y)
    <float[3, 4] mask, int64[1] start = {0}, int64[1] end = {2}> {
        m = Slice(mask, start, end)  s = Add(x, m)  y = Softmax(s)
    }""")
    mask = np.zeros((3, 4), np.float32)
    mask[:, 3] = np.finfo(np.float32).min
    (tensor,) = (one for one in model.graph.initializer if one.name == "mask")
    tensor.CopyFrom(numpy_helper.from_array(mask, "mask"))
    feeds = random_feeds(model, 2)
    found, expected = (run_model(one, feeds[0])["y"] for one in (_compiled(None, model).model, model))
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_what_is_looked_at_is_no_statistic_for_another_target() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(3, 4)).astype(np.float32)} for _ in range(100)]
    feeds[37]["x"][0, 0] = 50  # not among the samples that are looked at
    passes = "w8a8{calibrate.method=min-max}"
    model = parse("g (float[3, 4] x) => (float[3, 4] y) <float[4, 4] w> { a = MatMul(x, w)  y = Relu(a) }")
    rules, targets = ["Relu=float16"], ["ort-cpu", "npu"]
    together = qc.compile_for(model, targets, passes, data=feeds, precision=rules)["npu"]
    alone = qc.compile(model, passes, data=feeds, precision=rules, target="npu")
    found, expected = (of_value(one.ir, "x") for one in (together, alone))
    assert found is not None and expected is not None and found.encoding is not None
    assert expected.encoding is not None and found.encoding.equals(expected.encoding)
