"""Quantization inside the bodies of If, Loop and Scan: placement, ties, calibration and lowering."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto, TensorProto, helper
from support.bodies import models_with_bodies
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact, check, run_model
from support.placement import of_value, of_weight, op, placed, reason, value

from qc.coverage import coverage_of
from qc.ir.errors import UsageError
from qc.ir.formats import IntFormat
from qc.ir.lift import lift
from qc.ir.lower import lower, serialize
from qc.ir.model import Model
from qc.ir.quant import PerChannel, Quantizer, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.scopes import scopes_of
from qc.ir.text import print_model
from qc.passes import PassContext, Stage, parse_pipeline, registry, run_pipeline
from qc.passes.target import load_target

BOTH = f"{QUANTIZE},insert-qdq,to-simulation,to-encodings"
few = settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_lowered_alike(model: ModelProto, target: str = "ort-cpu", pipeline: str = BOTH) -> Model:
    """Lowers a model both ways and compares what both compute; gives the compiled model."""
    feeds = random_feeds(model, 4)
    ir, context, _ = apply(pipeline, model, target, feeds)
    check(artifact(context, "qdq"))
    for feed in feeds:
        assert_same_results(context, feed)
    return ir


def assert_same_results(context: PassContext, feed: dict[str, np.ndarray]) -> None:
    """Compares the QDQ model with the simulation."""
    real, simulated = (run_model(artifact(context, name), feed) for name in ("qdq", "simulation"))
    for name, array in real.items():
        np.testing.assert_allclose(simulated[name], array, atol=1e-5)


def held(model: Model, *names: str) -> list[Quantizer]:
    """The quantizers that all readers of some values see."""
    found = [of_value(model, name) for name in names]
    return [quantizer for quantizer in found if quantizer is not None]


# -- properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [cls.name for cls in registry() if cls.stage is Stage.FLOAT])
@few
@given(model=models_with_bodies())
def test_float_passes_keep_the_outputs(name: str, model: ModelProto) -> None:
    ir, _, report = apply(name, model)
    lowered = lower(ir)
    check(lowered)
    if not report.actions:
        assert serialize(lowered) == serialize(model)
    assert apply(name, ir)[2].actions == 0
    for feed in random_feeds(model, 2):
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


# -- If -----------------------------------------------------------------------------------------------

BRANCHES = """g (float[1, 2, 4, 4] x, bool c) => (float[1, 2, 4, 4] y)
<float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2, float[2] b, float[2, 2, 1, 1] w3> {
    a = Conv(x, w1)
    d = If(c) <
        then_branch = t () => (float[1, 2, 4, 4] p) { k = Conv(a, w2, b)  p = Add(k, a) },
        else_branch = e () => (float[1, 2, 4, 4] q) { q = Conv(a, w2) }
    >
    y = Conv(d, w3)
}"""


def test_what_branches_give_back_has_one_grid() -> None:
    model = placed(BRANCHES)
    p, q, d = held(model, "p", "q", "d")
    assert p is q is d
    assert of_value(model, "k") is not p is not of_value(model, "a")


def test_a_captured_tensor_is_quantized_where_it_is_made_and_a_weight_once() -> None:
    model = parse(BRANCHES)
    ir = assert_lowered_alike(model)
    weight = of_weight(ir, "k")
    assert weight is of_weight(ir, "q") and weight is not None
    assert weight.spec.granularity == PerChannel(0)
    bias = of_weight(ir, "k", 2)
    assert bias is not None and bias.spec.derived and bias.encoding is not None
    context = apply("insert-qdq", ir)[1]
    qdq = lift(artifact(context, "qdq"))
    codes = [
        v.name for v in qdq.graph.values() if v.const is not None and v.const.data_type == TensorProto.INT8
    ]
    assert "w2_quantized" in codes and len([name for name in codes if name.startswith("w2_q")]) == 1
    quantize = [o for graph in qdq.graphs() for o in graph.ops() if o.is_type("QuantizeLinear")]
    assert len([o for o in quantize if o.graph.op_inputs(o)[0] is value(qdq, "a")]) == 1


def test_a_constant_on_one_grid_for_all_is_dequantized_in_each_body() -> None:
    model = parse(BRANCHES)
    ir = lift(model)
    narrow = QuantSpec(IntFormat(8, signed=True), symmetric=True, narrow=True)
    ir.quant.place(Site(value(ir, "w2")), narrow, "asked for")
    context = apply("calibrate,insert-qdq,to-simulation", ir)[1]
    for flag in (True, False):
        assert_same_results(context, {**random_feeds(model)[0], "c": np.asarray(flag)})
    qdq = lift(artifact(context, "qdq"))
    for graph in op(qdq, "d").subgraphs.values():
        kinds = [inner.op_type for inner in graph.ops()]
        assert kinds.count("DequantizeLinear") == 1 and "QuantizeLinear" not in kinds


def test_onnx_runtime_runs_bodies_in_integers(tmp_path: Path) -> None:
    model = parse(BRANCHES.replace("p = Add(k, a)", "p = Identity(k)"))
    context = apply(f"{QUANTIZE},insert-qdq", model, feeds=random_feeds(model))[1]
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    proto = artifact(context, "qdq")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    branch = next(
        node for node in onnx.load(options.optimized_model_filepath).graph.node if node.op_type == "If"
    )
    for attribute in branch.attribute:
        kinds = [node.op_type for node in attribute.g.node]
        assert "QLinearConv" in kinds and "Conv" not in kinds


def test_a_float_result_needs_no_grid() -> None:
    model = placed(BRANCHES.replace("y = Conv(d, w3)", "y = Exp(d)"))
    assert not held(model, "d")
    assert held(model, "q") != held(model, "p"), "nothing asks for one grid"
    assert reason(model, "d") == "If of 'd' gives back float data, and nothing that reads it runs in integers"


def test_between_ops_see_through_an_if() -> None:
    text = """g (float[1, 2, 4, 4] x, bool c) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w> {{
        a = Conv(x, w)
        d = If(c) <
            then_branch = t () => (float[1, 2, 4, 4] p) {{ p = Add(a, a) }},
            else_branch = e () => (float[1, 2, 4, 4] q) {{ q = {other}(a) }}
        >
        s = Add(d, a)
        y = Conv(s, w)
    }}"""
    inside = placed(text.format(other="Identity"))
    assert len(held(inside, "p", "d", "s")) == 3
    outside = placed(text.format(other="Exp"))
    assert not held(outside, "p", "d")


def test_the_range_of_a_branch_that_becomes_an_output_is_kept_whole() -> None:
    text = """g (float[1, 2, 8, 8] x, bool c) => (float[1, 2, 8, 8] y) <float[2, 2, 1, 1] w> {
        y = If(c) <
            then_branch = t () => (float[1, 2, 8, 8] p) { p = Conv(x, w) },
            else_branch = e () => (float[1, 2, 8, 8] q) { k = Conv(x, w)  m = Conv(k, w)  q = Exp(m) }
        >
    }"""
    model = parse(text)
    feeds = random_feeds(model, 4)
    feeds[0]["x"][0, 0, 0, 0] = 40
    for flag, feed in enumerate(feeds):
        feed["c"] = np.asarray(flag % 2 == 0)
    pipeline = f"{PLACE},calibrate{{percentile=90 method=percentile}}"
    ir = apply(pipeline, model, feeds=feeds)[0]
    ends = {}
    for name in ("p", "k"):
        quantizer = of_value(ir, name)
        assert quantizer is not None and quantizer.encoding is not None
        ends[name] = float(quantizer.encoding.maximum)
    outputs = [run_model(model, feed)["y"] for feed in feeds[::2]]
    assert ends["p"] == pytest.approx(max(array.max() for array in outputs), rel=0.01)
    assert ends["k"] < ends["p"] / 2


def test_siblings_may_use_the_same_names() -> None:
    text = """g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        y = If(c) <
            then_branch = t () => (float[2, 4] r) { k = Abs(x)  r = MatMul(k, w) },
            else_branch = e () => (float[2, 4] r) { k = Exp(x)  r = MatMul(k, w) }
        >
    }"""
    model = parse(text)
    feeds = [{"x": np.full((2, 4), 3, np.float32), "c": np.asarray(flag)} for flag in (True, False)]
    ir, context, _ = apply(f"{PLACE},calibrate,to-encodings", model, feeds=feeds)
    then, other = (
        next(v for v in graph.values() if v.name == "k") for graph in op(ir, "y").subgraphs.values()
    )
    first, second = ir.quant.of_value(then), ir.quant.of_value(other)
    assert (
        first is not None
        and second is not None
        and first.encoding is not None
        and second.encoding is not None
    )
    assert float(first.encoding.maximum) == pytest.approx(3)
    assert float(second.encoding.maximum) == pytest.approx(np.exp(3))
    names = [tensor.name for tensor in coverage_of(ir).unquantized]
    assert "y/then_branch/r" in names and "y/else_branch/r" in names and len(set(names)) == len(names)
    assert "y/then_branch/k" in str(context.artifacts["encodings"].payload)
    assert [value.name for value in then.graph.values() if value is then] == ["k"]


def test_branches_without_work() -> None:
    """Branches that compute nothing, give back what they capture, or a constant."""
    text = """g (float[2, 4] x, bool c) => (float[2, 4] y, int64[2] n) <float[4, 4] w, float[2, 4] k> {
        a = MatMul(x, w)
        d = If(c) <
            then_branch = t () => (float[2, 4] p) { p = Identity(a) },
            else_branch = e () => (float[2, 4] q) { q = Identity(k) }
        >
        n = If(c) <
            then_branch = u () => (int64[2] i) { i = Shape(x) },
            else_branch = v () => (int64[2] j) { j = Constant<value = int64[2] {5, 6}>() }
        >
        y = MatMul(d, w)
    }"""
    for target in ("ort-cpu", "npu"):
        ir = assert_lowered_alike(parse(text), target)
        assert held(ir, "d")


@pytest.mark.parametrize("option", ["skip_ops=[If]", "skip_nodes=[choice]"])
def test_a_body_can_be_left_in_float(option: str) -> None:
    text = BRANCHES.replace("d = If(c)", "[choice] d = If(c)")
    model = placed(text, pipeline=PLACE.replace("insert-quantizers", f"insert-quantizers{{{option}}}"))
    assert not held(model, "p", "q", "k") and held(model, "a")
    assert "it is inside If 'choice', which runs in float: skip_" in reason(model, "k")


def test_a_target_can_leave_bodies_in_float() -> None:
    target = load_target("ort-cpu")
    rule = target.ops["If"].model_copy(update={"runs": "float", "why": "the device has no branches"})
    ir = lift(parse(BRANCHES))
    context = PassContext(target=target.model_copy(update={"ops": {**target.ops, "If": rule}}))
    run_pipeline(parse_pipeline(PLACE), ir, context)
    assert not held(ir, "p", "q", "k")
    assert reason(ir, "k").endswith("which runs in float: the device has no branches")


@pytest.mark.parametrize("runs", ["integer", "between"])
def test_control_flow_computes_nothing(runs: str, tmp_path: Path) -> None:
    text = resources.files("qc.passes").joinpath("targets", "ort-cpu.toml").read_text()
    file = tmp_path / "mine.toml"
    file.write_text(text.replace('Loop = { runs = "carry" }', f'Loop = {{ runs = "{runs}" }}'))
    with pytest.raises(
        UsageError, match="'Loop' computes nothing; it runs 'carry', or 'float' with its bodies"
    ):
        load_target(str(file))


# -- Loop and Scan ------------------------------------------------------------------------------------

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
    model = placed(RECURRENT.replace("next = MatMul(h, w)", "m = MatMul(h, w)  next = Tanh(m)"))
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
    assert not scopes_of(ir.graph).passages and not ir.quant.quantizers()


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
        model = assert_lowered_alike(parse(text), target)
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
    model = parse(text)
    ir = assert_lowered_alike(model)
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
    pipeline = f"{PLACE.replace(',tie-quantizers', '')},calibrate{{method={method}}},insert-qdq,to-simulation"
    ir, context, _ = apply(pipeline, model, feeds=feeds)
    assert held(ir, "h") and not held(ir, "s", "t", "a")
    for name in ("s", "a"):
        assert reason(ir, name) == "no calibration sample reached it"
    assert context.notes[0].startswith("no calibration sample reached 's' and 2 more: there no grid is known")
    for flag in (True, False):
        assert_same_results(context, {**feeds[0], "c": np.asarray(flag), "n": np.asarray(2)})


def test_a_loop_that_sometimes_does_not_run_is_calibrated_when_it_does() -> None:
    model = parse(RECURRENT)
    feeds = random_feeds(model, 3)
    for trips, feed in enumerate(feeds):
        feed["n"] = np.asarray(trips)
    ir, context, _ = apply(f"{PLACE},calibrate{{method=mse}}", model, feeds=feeds)
    quantizer = of_value(ir, "h")
    assert quantizer is not None and quantizer.encoding is not None and not context.notes


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
            then_branch = t () => (float[2, 4] r) { g = com.microsoft.QuickGelu(x)  r = MatMul(g, w) },
            else_branch = e () => (float[2, 4] q) { q = MatMul(x, w) }
        >
    }"""
    model = parse(text)
    context = apply(PLACE, model)[1]
    assert context.notes[0].startswith("the type of 'g' is not known, as ONNX does not define QuickGelu")
