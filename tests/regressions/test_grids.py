"""Grids that were wrong, or crashed, on tensors that are small, empty, huge or infinite."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from support.machine import needs_exact_sums
from support.models import floats, model_of, parse
from support.pipelines import PLACE, QUANTIZE, apply, artifact, run_model
from support.placement import axis, of_value, of_weight, placed, reason

import qc
from qc.runtime import evaluate

TARGETS = pytest.mark.parametrize("target", ["ort-cpu", "npu"])
Feed = dict[str, np.ndarray]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sqnr(proto: ModelProto, feeds: list[Feed], target: str, pipeline: str = "w8a8") -> float:
    """How close the QDQ model is to the float model, in dB."""
    compiled = qc.compile(proto, pipeline, data=feeds, target=target, threads=1)
    scores = evaluate(proto, {"qdq": compiled.model}, feeds, optimize=False, latency_seconds=0)
    return scores.candidates[0].worst_sqnr_db


@TARGETS
def test_tiny_numbers_have_a_fine_grid(target: str) -> None:
    """The smallest scale was 2**-23, so that spectra, which are often below it, became zero."""
    weight = numpy_helper.from_array(np.abs(normal(8, 5)) * np.float32(1e-6), "w")
    proto = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [floats("x", 3, 8)], [floats("y", 3, 5)], [weight]
    )
    assert sqnr(proto, [{"x": np.abs(normal(3, 8)) * np.float32(1e-8)}], target) > 30


@TARGETS
@pytest.mark.parametrize("options", ["", "{block_size=4}"])
def test_a_weight_without_elements(target: str, options: str) -> None:
    weights = [
        numpy_helper.from_array(np.zeros(shape, np.float32), f"w{n}")
        for n, shape in enumerate(((4, 0), (0, 3)))
    ]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("MatMul", ["h", "w1"], ["y"])]
    proto = model_of(nodes, [floats("x", 2, 4)], [floats("y", 2, 3)], weights)
    place = PLACE.replace("annotate-per-channel", f"annotate-per-channel{options}")
    feed = {"x": normal(2, 4)}
    _, context, _ = apply(f"{place},calibrate,insert-qdq,to-simulation", proto, target, [feed])
    for name in ("qdq", "simulation"):
        np.testing.assert_array_equal(run_model(artifact(context, name), feed)["y"], np.zeros((2, 3)))


def test_a_constant_without_elements() -> None:
    empty = numpy_helper.from_array(np.zeros((1, 0), np.float32), "k")
    proto = model_of(
        [helper.make_node("Add", ["x", "k"], ["y"])], [floats("x", 3, 1)], [floats("y", 3, 0)], [empty]
    )
    feed = {"x": normal(3, 1)}
    _, context, _ = apply(f"{QUANTIZE},insert-qdq", proto, "npu", [feed])
    assert run_model(artifact(context, "qdq"), feed)["y"].shape == (3, 0)


@needs_exact_sums
@TARGETS
@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 6, 5)])
def test_a_stack_of_matrices_runs_in_integers(target: str, shape: tuple[int, ...]) -> None:
    """ONNX Runtime fuses it with scales per channel, and then refuses them when it runs."""
    weight = numpy_helper.from_array(normal(*shape), "w")
    proto = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [floats("x", 2, 4, 6)],
        [floats("y", 2, 4, 5)],
        [weight],
    )
    feed = {"x": normal(2, 4, 6)}
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq", proto, target, [feed])
    assert axis(of_weight(ir, "y")) is None
    results = [run_model(artifact(context, "qdq"), feed, optimize)["y"] for optimize in (False, True)]
    np.testing.assert_allclose(*results, atol=0.05)


def test_col2im_adds_and_has_its_own_grid() -> None:
    """It was taken for an op that only moves data, so that sums were cut off at the range of the summands."""
    text = """g (float[1, 9, 9] x) => (float[1, 1, 5, 5] y)
    <int64[2] image = {5, 5}, int64[2] block = {3, 3}> {
        r = Neg(x)
        y = Col2Im<pads = [0, 0, 0, 0], strides = [1, 1]>(r, image, block)
    }"""
    model = placed(text, "npu")
    assert of_value(model, "y") is not None
    assert of_value(model, "y") is not of_value(model, "r")
    assert sqnr(parse(text), [{"x": np.abs(normal(1, 9, 9))}], "npu") > 30


def test_diffuse_attention_on_cpu() -> None:
    """On a grid from 0 to 1, probabilities over hundreds of positions were rounded to zero."""
    length, width = 256, 16
    names = ("wq", "wk", "wv")
    weights = [
        numpy_helper.from_array(normal(width, width, seed=n) / 4, name) for n, name in enumerate(names)
    ]
    nodes = [helper.make_node("MatMul", ["x", name], [name[1]]) for name in names]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    given = floats("x", 1, length, width)
    proto = model_of(nodes, [given], [floats("y", 1, length, width)], weights)
    assert sqnr(proto, [{"x": normal(1, length, width) / 2}], "ort-cpu") > 20


@TARGETS
@pytest.mark.parametrize("number", [-np.inf, np.finfo(np.float32).min, -1e9])
@pytest.mark.parametrize("op", ["Where", "Add"])
@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16", "fp16"])
def test_masked_attention(target: str, number: float, op: str, pipeline: str) -> None:
    """An infinite mask made calibration fail, and a large one took all codes of the scores."""
    hidden = np.triu(np.ones((4, 4), bool), 1)
    mask = np.where(hidden, number, 0).astype(np.float32) if op == "Add" else np.float32(number)
    weights = [
        numpy_helper.from_array(normal(4, 4), "w"),
        numpy_helper.from_array(~hidden, "seen"),
        numpy_helper.from_array(np.asarray(mask), "mask"),
    ]
    inputs = ["seen", "s", "mask"] if op == "Where" else ["s", "mask"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node(op, inputs, ["a"]),
        helper.make_node("Softmax", ["a"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    proto = model_of(nodes, [floats("x", 4, 4), floats("v", 4, 4)], [floats("y", 4, 4)], weights)
    feeds = [{"x": normal(4, 4, seed=1), "v": normal(4, 4, seed=2)}]
    assert sqnr(proto, feeds, target, pipeline) > 25
    if target == "npu":
        ir = qc.compile(proto, pipeline, data=feeds, target=target, threads=1).ir
        if np.isinf(number) or pipeline == "fp16":  # where a masked row would become NaN
            assert "it can hold infinity" in reason(ir, "a")
        else:
            assert "inside masked_softmax" in reason(ir, "a")
        assert of_value(ir, "s") is not None and of_value(ir, "p") is not None


def test_a_constant_beyond_float16_stays_float() -> None:
    """It became infinity."""
    big = numpy_helper.from_array(np.float32(1e5), "k")
    nodes = [helper.make_node("Div", ["x", "k"], ["y"])]
    proto = model_of(nodes, [floats("x", 3, 4)], [floats("y", 3, 4)], [big])
    assert sqnr(proto, [{"x": normal(3, 4) * 1e4}], "npu", "fp16") > 50


@TARGETS
def test_a_model_of_16_bit_floats_says_why_nothing_is_quantized(target: str) -> None:
    text = "g (float16[3, 4] x) => (float16[3, 5] y) <float16[4, 5] w> { y = MatMul(x, w) }"
    with pytest.raises(qc.CoverageError, match="16-bit floats; qc quantizes float32"):
        feeds = [{"x": normal(3, 4).astype(np.float16)}]
        qc.compile(
            parse(text), "insert-quantizers,calibrate,insert-qdq", data=feeds, target=target, threads=1
        )
