"""Quantization inside the branches of If: placement, ties and lowering."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from support.lowered import assert_lowered_alike, assert_same_results, held
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact, run_model
from support.placement import of_value, of_weight, op, placed, reason, value

from qc.coverage import coverage_of
from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import PerChannel, QuantSpec
from qc.ir.quant_table import Site
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.framework.target import load_target

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
    assert len([o for o in quantize if o.inputs[0] is value(qdq, "a")]) == 1


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
