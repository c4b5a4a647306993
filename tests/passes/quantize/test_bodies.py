"""Quantization inside bodies: properties, calibration, and what is not float or not understood."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto, helper
from support.bodies import models_with_bodies
from support.lowered import assert_lowered_alike, assert_same_results, held
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, PLACE_SLOWER, apply, check, run_model
from support.placement import of_weight, reason

from qc.ir.facts.scopes import scopes_of
from qc.ir.onnx.lower import lower, serialize
from qc.ir.text import print_model
from qc.passes import Pass, Stage, registry

few = settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# -- properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls", [cls for cls in registry() if cls.stage is Stage.FLOAT], ids=lambda cls: cls.name
)
@few
@given(model=models_with_bodies())
def test_float_passes_keep_the_outputs(cls: type[Pass], model: ModelProto) -> None:
    feeds = random_feeds(model, 2)
    ir, _, report = apply(cls.name, model, feeds=feeds)
    lowered = lower(ir)
    check(lowered)
    if not report.actions:
        assert serialize(lowered) == serialize(model)
    assert apply(cls.name, ir, feeds=feeds)[2].actions == 0 or not cls.idempotent
    for feed in feeds:
        expected = run_model(model, feed)
        for output, array in run_model(lowered, feed).items():
            np.testing.assert_allclose(array, expected[output], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@few
@given(model=models_with_bodies())
def test_the_simulation_is_what_onnx_runtime_computes(target: str, model: ModelProto) -> None:
    ir = assert_lowered_alike(model, target)
    text = print_model(ir)
    apply("insert-qdq,to-simulation", ir, target)
    assert print_model(ir) == text
    for graph in scopes_of(ir.graph).graphs:
        for found in graph.values():
            quantized = any(site.value.original is found for site in ir.quant.sites())
            if found.is_float and found.captured is None and not quantized:
                assert ir.quant.why_not(found), f"'{found.name}' is left in float without a word"


# -- calibration --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["min-max", "mse"])
def test_what_no_sample_reaches_stays_float(method: str) -> None:
    text = """g (float[2, 4] x, bool c, int64 n) => (float[2, 4] y) <float[4, 4] w, float[4] b> {
        h = Loop(n, , x) <
            body = step (int64 i, bool k, float[2, 4] s) => (bool d, float[2, 4] t) {
                d = Identity(k)
                m = MatMul(s, w)
                t = Add(m, b)
            }
        >
        y = If(c) <
            then_branch = t () => (float[2, 4] r) { r = MatMul(h, w) },
            else_branch = e () => (float[2, 4] q) { a = Abs(x)  q = Gemm(a, w, b) }
        >
    }"""
    model = parse(text)
    feeds = random_feeds(model, 3)
    for feed in feeds:
        feed["c"], feed["n"] = np.asarray(True), np.asarray(0)
    untied = PLACE_SLOWER.replace(",tie-quantizers", "")
    pipeline = f"{untied},calibrate{{method={method}}},insert-qdq,to-simulation"
    ir, context, _ = apply(pipeline, model, feeds=feeds)
    assert held(ir, "h") and not held(ir, "s", "t", "a")
    for name in ("s", "a"):
        assert reason(ir, name) == "no calibration sample reached it"
    assert context.notes[0].startswith("no calibration sample reached 's' and 2 more: there no grid is known")
    for flag in (True, False):
        assert_same_results(context, {**feeds[0], "c": np.asarray(flag), "n": np.asarray(2)})


# -- what is not float, or not understood --------------------------------------------------------------


def test_sequences_and_optionals_pass_through_bodies() -> None:
    text = """g (float[2, 4] x, int64 n, bool c) => (float[k, 4] y, float[2, 4] z) <float[4, 4] w> {
        empty = SequenceEmpty()
        rows = Loop(n, , empty) <
            body = step (int64 i, bool k, seq(float[2, 4]) before) => (bool d, seq(float[2, 4]) after) {
                d = Identity(k)
                m = MatMul(x, w)
                after = SequenceInsert(before, m)
            }
        >
        full = SequenceInsert(rows, x)
        y = ConcatFromSequence<axis = 0>(full)
        some = If(c) <
            then_branch = t () => (optional(float[2, 4]) o) { a = MatMul(x, w)  o = Optional(a) },
            else_branch = e () => (optional(float[2, 4]) p) { p = Optional(x) }
        >
        z = OptionalGetElement(some)
    }"""
    for target in ("ort-cpu", "npu"):
        ir = assert_lowered_alike(parse(text), target)
        assert of_weight(ir, "m") is not None and of_weight(ir, "m") is of_weight(ir, "a")


def test_bodies_of_other_ops_stay_float() -> None:
    body = helper.make_graph(
        [helper.make_node("MatMul", ["row", "w"], ["r"])], "body", [floats("row", 1, 4)], [floats("r", 1, 4)]
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1),
        helper.make_node("SequenceMap", ["rows"], ["done"], body=body),
        helper.make_node("ConcatFromSequence", ["done"], ["joined"], axis=0),
        helper.make_node("MatMul", ["joined", "w"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")]
    model = model_of(nodes, [floats("x", 2, 4)], [floats("y", 2, 4)], weights)
    for target in ("ort-cpu", "npu"):
        ir = assert_lowered_alike(model, target)
        assert reason(ir, "r").endswith("whose bodies only its runtime knows how to run")


def test_types_that_nobody_knows_are_told() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        y = If(c) <
            then_branch = t () => (float[2, 4] r) { g = com.microsoft.Inverse(x)  r = MatMul(g, w) },
            else_branch = e () => (float[2, 4] q) { q = MatMul(x, w) }
        >
    }"""
    model = parse(text)
    context = apply(PLACE, model)[1]
    assert context.notes[0].startswith("the type of 'g' is not known, as ONNX does not define Inverse")
