"""Quantization inside the bodies of Loop and Scan, and of bodies in bodies."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.lowered import BOTH, assert_lowered_alike, held
from support.models import parse, random_feeds
from support.pipelines import PLACE, PLACE_SLOWER, apply, run_model
from support.placement import of_value, of_weight, placed, reason

from qc.ir.errors import UsageError
from qc.ir.facts.scopes import scopes_of
from qc.ir.onnx.lower import lower
from qc.ir.quant.spec import PerChannel

SLOWER = BOTH.replace(PLACE, PLACE_SLOWER)

RECURRENT = """g (float[2, 4] x, int64 n) => (float[2, 3] y, float[k, 2, 4] all)
<float[4, 4] w, float[4, 3] v> {
    start = MatMul(x, w)
    last, all = Loop(n, , start) <
        body = step (int64 i, bool c, float[2, 4] h) => (bool d, float[2, 4] next, float[2, 4] shown) {
            d = Identity(c)
            next = MatMul(h, w)
            shown = Identity(next)
        }
    >
    y = MatMul(last, v)
}"""


def test_what_a_loop_carries_has_one_grid() -> None:
    model = placed(RECURRENT, "npu")
    assert len(set(held(model, "start", "h", "next", "last"))) == 1
    assert len(held(model, "start", "h", "next", "last")) == 4
    assert_lowered_alike(parse(RECURRENT), "npu")


def test_a_start_that_others_read_keeps_its_grid() -> None:
    model = placed(
        RECURRENT.replace("y = MatMul(last, v)", "s = MatMul(start, w)  y = MatMul(last, v)"), "npu"
    )
    assert held(model, "start") != held(model, "h")
    assert len(set(held(model, "h", "next", "last"))) == 1


def test_the_state_stays_float_where_integers_only_read_it() -> None:
    text = RECURRENT.replace("next = MatMul(h, w)", "m = MatMul(h, w)  next = Tanh(m)")
    model = placed(text, pipeline=PLACE_SLOWER)
    assert held(model, "h") == held(model, "last") == held(model, "start") != []
    assert reason(model, "next").startswith("Tanh of 'next' runs in float")


def test_a_weight_that_a_loop_carries_is_quantized_as_one_whatever_its_name() -> None:
    text = """g (float[2, 4] x, int64 n) => (float[2, 4] y) <float[4, 4] w> {
        y, same = Loop(n, , x, w) <
            body = step (int64 i, bool c, float[2, 4] h, float[4, 4] w)
                => (bool d, float[2, 4] next, float[4, 4] w) {
                d = Identity(c)
                m = MatMul(h, w)
                next = Tanh(m)
            }
        >
    }"""
    model = parse(text)
    ir = assert_lowered_alike(model, pipeline=f"hoist-loop-invariants,{BOTH}")
    weight = of_weight(ir, "m")
    assert weight is not None and weight.spec.granularity == PerChannel(1)
    feed = random_feeds(model)[0]
    np.testing.assert_allclose(run_model(lower(ir), feed)["y"], run_model(model, feed)["y"], rtol=1e-6)


def test_scans_slice_and_stack() -> None:
    text = """g (float[2, 4] x, float[3, 2, 4] rows) => (float[3, 2, 4] z) <float[4, 4] w> {
        a = MatMul(rows, w)
        total, all = Scan(x, a) <
            num_scan_inputs = 1,
            body = step (float[2, 4] sum, float[2, 4] row) => (float[2, 4] more, float[2, 4] shown) {
                m = MatMul(row, w)
                more = Add(sum, m)
                shown = MatMul(more, w)
            }
        >
        z = MatMul(all, w)
    }"""
    for target in ("npu", "ort-cpu"):
        model = assert_lowered_alike(parse(text), target)
        assert held(model, "row") == held(model, "a")
        assert held(model, "shown") == held(model, "all")
    assert len(set(held(placed(text, "npu"), "sum", "more"))) == 1


@pytest.mark.parametrize("sliced", [-1, 3, 1 << 40])
def test_a_scan_that_cannot_be_is_left_to_its_runtime(sliced: int) -> None:
    model = parse("""scans (float[2] x, float[3, 2] xs) => (float[2] y, float[3, 2] ys) {
        y, ys = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) {
            t = Add(s, e)
            u = Identity(t)
        }>(x, xs)
    }""")
    scan = model.graph.node[0]
    next(given for given in scan.attribute if given.name == "num_scan_inputs").i = sliced
    ir = apply("hoist-loop-invariants,match-supergroups,insert-quantizers", model)[0]
    assert not scopes_of(ir.graph).branch_edges and not ir.quant.quantizers()


def test_a_scan_backwards_along_another_axis() -> None:
    text = """g (float[2, 4] x, float[2, 3, 4] rows) => (float[2, 4, 3] z) <float[4, 4] w, float[3, 3] v> {
        a = MatMul(rows, w)
        last, all = Scan(x, a) <
            num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_axes = [2], scan_output_directions = [1],
            body = step (float[2, 4] sum, float[2, 4] row) => (float[2, 4] more, float[2, 4] shown) {
                m = MatMul(row, w)
                more = Add(sum, m)
                shown = MatMul(more, w)
            }
        >
        z = MatMul(all, v)
    }"""
    for target in ("npu", "ort-cpu"):
        model = assert_lowered_alike(parse(text), target, SLOWER)
        assert held(model, "row") == held(model, "a") != held(model, "shown") == held(model, "all")


def test_bodies_in_bodies() -> None:
    text = """g (float[2, 4] x, int64 n, bool c) => (float[2, 4] y) <float[4, 4] w> {
        a = MatMul(x, w)
        y = Loop(n, , x) <
            body = step (int64 i, bool k, float[2, 4] h) => (bool d, float[2, 4] next) {
                d = Identity(k)
                next = If(c) <
                    then_branch = t () => (float[2, 4] r) { m = MatMul(h, w)  r = Tanh(m) },
                    else_branch = e () => (float[2, 4] r) { m = MatMul(a, w)  r = Tanh(m) }
                >
            }
        >
    }"""
    ir = assert_lowered_alike(parse(text), pipeline=SLOWER)
    assert held(ir, "a", "h")


def test_infinity_is_followed_through_loops() -> None:
    text = """g (float[2, 4] x, int64 n) => (float[2, 4] y) <float[2, 4] low = {-inf}, float[4, 4] w> {
        m, s = Loop(n, , low, x) <
            body = step (int64 i, bool c, float[2, 4] best, float[2, 4] other)
                => (bool d, float[2, 4] more, float[2, 4] best2) {
                d = Identity(c)
                more = Add(other, best)
                best2 = Identity(best)
            }
        >
        a = Add(m, x)
        y = Relu(s)
    }""".replace("{-inf}", "{0,0,0,0,0,0,0,0}")
    model = parse(text)
    low = next(tensor for tensor in model.graph.initializer if tensor.name == "low")
    low.CopyFrom(onnx.numpy_helper.from_array(np.full((2, 4), -np.inf, np.float32), "low"))
    ir = apply(PLACE, model, "npu")[0]
    for name in ("best", "other", "more", "m", "s", "a"):
        assert "it can hold infinity" in reason(ir, name)


def test_a_loop_that_sometimes_does_not_run_is_calibrated_when_it_does() -> None:
    model = parse(RECURRENT)
    feeds = random_feeds(model, 3)
    for trips, feed in enumerate(feeds):
        feed["n"] = np.asarray(trips)
    ir, context, _ = apply(f"{PLACE_SLOWER},calibrate{{method=mse}}", model, feeds=feeds)
    quantizer = of_value(ir, "h")
    assert quantizer is not None and quantizer.encoding is not None and not context.notes


@pytest.mark.parametrize("method", ["sqnr", "percentile"])
def test_the_histogram_of_aimet_does_not_see_into_a_body(method: str) -> None:
    model = parse(RECURRENT)
    feeds = [{"x": np.ones((2, 4), np.float32), "n": np.asarray(2)}]
    with pytest.raises(UsageError, match=r"cannot look at '\w+' inside a body on each feed; use another"):
        apply(f"{PLACE},calibrate-as-aimet{{method={method}}}", model, "npu", feeds)
    apply(f"{PLACE},calibrate-as-aimet", model, "npu", feeds)
