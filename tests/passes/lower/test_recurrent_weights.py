"""Recurrent ops: their weights are stored in codes, and nothing dequantizes them in every run."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.models import floats
from support.pipelines import QUANTIZE, apply, artifact, check, run_model
from support.placement import of_weight, reason
from support.recurrent import decibels, recurrent, recurrent_feeds

import qc
from qc.ir.onnx.lower import serialize
from qc.ir.quant.spec import PerChannel
from qc.processor import default_target
from qc.runtime import open_session
from qc.runtime.protos.wiring import all_nodes

HERE = default_target().name
LARGE = {"hidden": 64, "inputs": 64}  # as many weights as make ONNX Runtime's kernel on codes worth it
PASSES = f"{QUANTIZE},insert-qdq"
OPS = pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
FORMS = pytest.mark.parametrize(
    "form",
    [
        {},
        {"direction": "reverse"},
        {"direction": "bidirectional"},
        {"states": True},
        {"lengths": True},
        {"direction": "bidirectional", "states": True, "lengths": True},
        {"clip": 0.5},
        {"outputs": ("", "h")},
        {"outputs": ("y",)},
        {"opset": 12},
    ],
    ids=str,
)


def lowered(model: ModelProto, options: str = "", target: str = HERE) -> ModelProto:
    made = artifact(apply(f"{PASSES}{options}", model, target, recurrent_feeds(model))[1], "qdq")
    check(made)
    return made


def op_types(model: ModelProto) -> Counter[str]:
    """The ops of all graphs."""
    return Counter(node.op_type for node in all_nodes(model.graph))


def optimized(model: ModelProto, folder) -> Counter[str]:
    """The ops that ONNX Runtime makes of a model when it loads it."""
    open_session(model, optimized_file=folder / "optimized.onnx")
    return op_types(onnx.load(folder / "optimized.onnx"))


@OPS
@FORMS
def test_weights_are_stored_in_codes_and_results_stay(op_type: str, form: dict, tmp_path) -> None:
    for size in ({}, LARGE):
        model = recurrent(op_type, **size, **form)
        made = lowered(model)
        stored = {tensor.data_type for tensor in made.graph.initializer if len(tensor.dims) == 3}
        assert stored == {TensorProto.INT8}
        feed = recurrent_feeds(model)[1]
        assert decibels(run_model(model, feed), run_model(made, feed, optimize=True)) > 35
        kernel = "DynamicQuantizeLSTM" if size and op_type == "LSTM" else op_type
        assert optimized(made, tmp_path) == {kernel: 1}, "nothing dequantizes weights in every run"


@OPS
def test_the_grid_has_a_scale_for_each_gate(op_type: str) -> None:
    model = recurrent(op_type, direction="bidirectional")
    ir, context, _ = apply(f"{PASSES},to-simulation", model, HERE, feeds=recurrent_feeds(model))
    for port in (1, 2):
        quantizer = of_weight(ir, "y", port)
        assert quantizer is not None and quantizer.spec.granularity == PerChannel(1)
        assert str(quantizer.spec.format) == "int8"
    assert "grid for its weights alone" in reason(ir, "x") and "grid for its weights alone" in reason(ir, "b")
    feed = recurrent_feeds(model)[0]
    simulated, exact = run_model(artifact(context, "simulation"), feed), run_model(lowered(model), feed)
    assert decibels(simulated, exact) > 100, "the simulation computes with the weights on their grids"
    assert decibels(run_model(model, feed), simulated) < 80


@pytest.mark.parametrize("size", [{}, LARGE], ids=str)
def test_peepholes(size: dict) -> None:
    model = recurrent("LSTM", peepholes=True, states=True, **size)
    feed, made = recurrent_feeds(model)[0], lowered(model)
    assert decibels(run_model(model, feed), run_model(made, feed, optimize=True)) > 35
    peepholes = next(tensor for tensor in made.graph.initializer if tensor.name == "p")
    assert peepholes.data_type == TensorProto.FLOAT


@OPS
def test_the_batch_in_front_which_onnx_runtime_does_not_run(op_type: str) -> None:
    model = recurrent(op_type, **LARGE, layout=1)
    made = artifact(apply(f"{PASSES}", model)[1], "qdq")
    assert op_types(made) == {"Cast": 2, "Mul": 2, op_type: 1}
    feed = recurrent_feeds(model)[0]
    wanted, found = (
        dict(zip("yh", ReferenceEvaluator(one).run(None, feed), strict=True)) for one in (model, made)
    )
    assert decibels(wanted, found) > 35


@pytest.mark.parametrize("before", [0, 1])
def test_a_gru_that_resets_before_or_behind_its_product(before: int) -> None:
    model = recurrent("GRU", linear_before_reset=before)
    feed, made = recurrent_feeds(model)[0], lowered(model)
    assert decibels(run_model(model, feed), run_model(made, feed, optimize=True)) > 35


@pytest.fixture
def everything_on_codes(tmp_path) -> str:
    """A target for which no recurrent op is too small for kernels on codes."""
    path = tmp_path / "small.toml"
    text = f"name = 'small'\nsummary = 'small'\nextends = '{HERE}'\n"
    path.write_text(f"{text}[lowering]\ndynamic_lstm_from = 1\nscanned_gru_from = 1\n")
    return str(path)


@FORMS
def test_a_large_gru_is_written_as_a_scan(form: dict, everything_on_codes: str, tmp_path) -> None:
    model = recurrent("GRU", 16, linear_before_reset=1, **form)
    made = lowered(model, target=everything_on_codes)
    feed = recurrent_feeds(model)[1]
    assert decibels(run_model(model, feed), run_model(made, feed, optimize=True)) > 35
    if form.get("lengths") or "clip" in form:
        assert op_types(made) == {"Cast": 2, "Mul": 2, "GRU": 1}
        return
    directions = 1 + (form.get("direction") == "bidirectional")
    assert op_types(made)["Scan"] == directions and op_types(made)["DynamicQuantizeMatMul"] == 2 * directions
    shapes = [tuple(tensor.dims) for tensor in made.graph.initializer if tensor.data_type == TensorProto.INT8]
    assert (
        sorted(shape for shape in shapes if len(shape) == 2)
        == [(12, 48)] * directions + [(16, 48)] * directions
    )
    one = recurrent_feeds(model, steps=1)[0]
    assert decibels(run_model(model, one), run_model(made, one, optimize=True)) > 35


@pytest.mark.parametrize(
    "form",
    [{"linear_before_reset": 0}, {"linear_before_reset": 1, "activations": ["HardSigmoid", "Tanh"]}],
    ids=str,
)
def test_other_kinds_of_gru_stay_one_op(form: dict, everything_on_codes: str) -> None:
    model = recurrent("GRU", **form)
    assert op_types(lowered(model, target=everything_on_codes)) == {"Cast": 2, "Mul": 2, "GRU": 1}


def test_the_size_of_a_gru_decides(tmp_path) -> None:
    for hidden, written in ((383, "GRU"), (384, "Scan")):
        made = lowered(recurrent("GRU", hidden, 4, linear_before_reset=1))
        assert op_types(made)[written] == 1


def test_plain_quantize_ops_if_they_are_asked_for() -> None:
    made = lowered(recurrent("LSTM", **LARGE), "{fit_recurrent=false}")
    assert op_types(made) == {"DequantizeLinear": 2, "LSTM": 1}


@OPS
@pytest.mark.parametrize("size", [{}, LARGE], ids=str)
def test_what_was_written_comes_back(op_type: str, size: dict) -> None:
    made = lowered(recurrent(op_type, direction="bidirectional", states=True, **size))
    ir, context, _ = apply("import-qdq,insert-qdq", made, HERE)
    assert [op.op_type for op in ir.graph.ops()] == [op_type]
    assert of_weight(ir, "y", 1) and of_weight(ir, "y", 2)
    assert serialize(artifact(context, "qdq")) == serialize(made)


def test_kernels_on_codes_of_others_stay_where_directions_have_scales_of_their_own() -> None:
    made = lowered(recurrent("LSTM", direction="bidirectional", **LARGE))
    for tensor in made.graph.initializer:
        if tensor.name.endswith("scale"):
            scale = numpy_helper.to_array(tensor) * np.array([[1], [2]], np.float32)
            tensor.CopyFrom(numpy_helper.from_array(scale, tensor.name))
    ir = apply("import-qdq", made)[0]
    assert [op.op_type for op in ir.graph.ops()] == ["DynamicQuantizeLSTM"]


@OPS
def test_four_bits_become_eight_with_the_reason(op_type: str) -> None:
    model = recurrent(op_type)
    compiled = qc.compile(model, "w4a8", data=recurrent_feeds(model), target="ort-cpu", threads=1)
    assert compiled.coverage.formats == {"int8 symmetric narrow channel(1)": 2}
    said = [str(remark) for remark in compiled.ir.journal.remarks if remark.kind == "place"]
    assert len(said) == 2 and all("ort-cpu has no kernel for int4 there" in line for line in said)
    by_hand = qc.compile(model, "w8a8", data=recurrent_feeds(model), threads=1, precision=[f"{op_type}=w4"])
    assert by_hand.coverage.formats == {"int4 symmetric channel(1)": 2}
    feed = recurrent_feeds(model)[0]
    wanted = run_model(by_hand.simulation, feed)
    assert decibels(wanted, run_model(by_hand.model, feed, optimize=True)) > 80


@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
@pytest.mark.parametrize("kernels", [False, True])
def test_weights_that_branches_share_are_stored_once(
    op_type: str, kernels: bool, everything_on_codes: str, tmp_path
) -> None:
    target = everything_on_codes if kernels else HERE
    model = recurrent(op_type, outputs=("y",))
    attributes = {"linear_before_reset": 1} if op_type == "GRU" else {}
    branches = [
        helper.make_graph(
            [helper.make_node(op_type, ["x", "w", "r", "b"], [f"y{i}"], hidden_size=8, **attributes)],
            f"branch{i}",
            [],
            [floats(f"y{i}", "steps", 1, "batch", "hidden")],
        )
        for i in range(2)
    ]
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    del model.graph.node[:]
    model.graph.node.append(chosen)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    feeds = [{**recurrent_feeds(recurrent(op_type))[0], "c": np.array(c)} for c in (True, False)]
    made = artifact(apply(PASSES, model, target, feeds)[1], "qdq")
    check(made)
    codes = [one for one in made.graph.initializer if one.data_type == TensorProto.INT8 and len(one.dims) > 1]
    assert sum(math.prod(one.dims) for one in codes) < 1.3 * sum(
        math.prod(one.dims) for one in model.graph.initializer if one.name in "wr"
    )
    for feed in feeds:
        assert decibels(run_model(model, feed), run_model(made, feed, optimize=True)) > 35
    kernel = {"LSTM": "DynamicQuantizeLSTM", "GRU": "DynamicQuantizeMatMul"}[op_type] if kernels else op_type
    found = optimized(made, tmp_path)
    assert found[kernel] >= 2 and {"Cast", "DequantizeLinear"}.isdisjoint(found)


def test_weights_that_are_computed_or_left_out_stay_float() -> None:
    model = recurrent("LSTM")
    model.graph.input.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 32, 8]))
    kept = [tensor for tensor in model.graph.initializer if tensor.name != "r"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    made = artifact(apply("insert-quantizers,annotate-per-channel,calibrate,insert-qdq", model)[1], "qdq")
    assert op_types(made) == {"Cast": 1, "Mul": 1, "LSTM": 1}
    skipped = apply(f"{PASSES.replace('insert-quantizers', 'insert-quantizers{skip_ops=[LSTM]}')}", model)[1]
    assert op_types(artifact(skipped, "qdq")) == {"LSTM": 1}


@OPS
@pytest.mark.parametrize("target", ["npu", HERE])
def test_weights_are_stored_in_small_floats_beside_data_that_is_rounded_to_them(
    op_type: str, target: str
) -> None:
    model = recurrent(op_type)
    feeds = recurrent_feeds(model)
    made = qc.compile(model, "fp16", data=feeds, target=target).model
    stored = {tensor.data_type for tensor in made.graph.initializer if len(tensor.dims) == 3}
    assert stored == {TensorProto.FLOAT16}
    assert decibels(run_model(model, feeds[1]), run_model(made, feeds[1])) > 50
