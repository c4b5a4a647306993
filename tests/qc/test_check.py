"""``qc check``: what of a model runs in integers, and why not all of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.benches import import_bench
from support.models import floats, parse, random_feeds
from support.recurrent import recurrent, recurrent_feeds

import qc as qc_package
from qc.checking import Check, CheckedOp
from qc.passes.framework.target import load_target
from qc.rendering.check import integer_share, seconds_by_type

PASSES = (
    "fold-constants,eliminate-dead-code,match-supergroups,insert-quantizers,annotate-per-channel,"
    "tie-quantizers,calibrate,insert-qdq"
)


@pytest.mark.parametrize(
    ("name", "integer"),
    [
        ("resnet50", {"Conv": 53, "Add": 16, "Gemm": 1}),
        ("mobilenetv2", {"Conv": 52, "Add": 10, "Gemm": 1}),
        ("vit", {"MatMul": 72, "Gemm": 1, "Conv": 1}),
    ],
)
def test_the_networks_run_in_integers(name: str, integer: dict[str, int]) -> None:
    networks = import_bench("models.networks")
    model = networks.NETWORKS[name]()
    passes = PASSES.replace("insert-quantizers", "insert-quantizers{slower=integer}")
    compiled = qc_package.compile(model, passes, data=list(networks.feeds(1)))
    check = qc_package.check(compiled.model)
    done = Counter(op.op_type for op in check.counted if op.runs == "integer")
    assert {op_type: done[op_type] for op_type in integer} == integer
    assert check.executed and check.broken == () and check.share == 1
    of = Counter(node.op_type for node in model.graph.node)
    assert all(
        of[op_type] == number for op_type, number in integer.items() if (name, op_type) != ("vit", "Add")
    )


def test_products_of_probabilities_are_in_float_where_they_take_no_longer() -> None:
    networks = import_bench("models.networks")
    compiled = qc_package.compile(networks.NETWORKS["vit"](), PASSES, data=list(networks.feeds(1)))
    check = qc_package.check(compiled.model)
    done = Counter(op.op_type for op in check.counted if op.runs == "integer")
    assert done["MatMul"] == 60 and 0.97 < check.share < 1 and check.broken == ()


@pytest.fixture
def quantized(qc) -> str:
    qc("model.onnx", "--data", "calibration.npz", "-q")
    return "model.q.onnx"


def test_check_shows_kernels_costs_and_shares(qc, quantized: str) -> None:
    result = qc("check", quantized, "--runs", "2", "--json", "check.json", "--fail-below", "95%")
    assert (result.code, result.made) == (0, ["check.json"])
    assert "15 of 15 ops, 100.0% of the multiplications" in result.out
    assert "QLinearConv" in result.out and "10 of 10" in result.out
    assert "QLinearGlobalAveragePool\n" in result.out, "whole on a terminal of 80 columns"
    document = json.loads(Path("check.json").read_text())
    assert document["executed"] and document["share"] == 1.0 and document["share_of"] == "multiplications"
    convs = [op for op in document["ops"] if op["op_type"] == "Conv"]
    assert len(convs) == 10
    assert all(op["runs"] == "integer" and op["multiplications"] > 0 and op["seconds"] > 0 for op in convs)
    measured = sum(op["seconds"] for op in document["ops"]) + sum(one["seconds"] for one in document["rest"])
    assert document["seconds"] == pytest.approx(measured)


def test_convolutions_in_float_are_told_from_what_reorders_their_results(qc) -> None:
    qc("model.onnx", "--data", "calibration.npz", "-q", "--set", "Conv=off")
    qc("check", "model.q.onnx", "--runs", "2", "--json", "check.json")
    ops = json.loads(Path("check.json").read_text())["ops"]
    convs = [op for op in ops if op["op_type"] == "Conv"]
    assert [(op["kernel"], op["runs"]) for op in convs] == [("Conv", "float")] * 10
    assert len({op["runs_as"] for op in convs}) == 10


def test_a_row_has_one_line_where_there_is_no_terminal(
    qc, quantized: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("check", quantized, "--target", "tensorrt")
    sentence = "Conv 'conv_1': 'image' is quantized to uint8; tensorrt takes int8 or float8e4m3fn"
    assert sentence not in qc(*arguments).out, "COLUMNS, which is 80, is obeyed"
    monkeypatch.delenv("COLUMNS")
    assert f"  {sentence}\n" in qc(*arguments).out
    assert max(map(len, qc("help", "calibrate").out.splitlines())) <= 80, "but text is wrapped"


def test_check_names_ops_in_float_with_the_rule(qc) -> None:
    qc("model.onnx", "--data", "calibration.npz", "-q", "--pipeline", "w8a16")
    result = qc("check", "model.q.onnx", "--runs", "0", "--fail-below", "50")
    assert result.code == 5
    assert "in float: type combination" in result.out and "uint16" in result.out
    assert "-v lists them all" in result.out
    assert "and --fail-below asks for 50.0%" in result.err
    every = qc("check", "model.q.onnx", "--runs", "0", "-v")
    assert every.code == 0 and every.out.count("Conv '") == 10


def test_check_against_the_rules_of_a_target_that_is_not_here(qc, quantized: str) -> None:
    result = qc("check", quantized, "--target", "tensorrt")
    assert result.code == 0
    assert "its rules, checked on the graph" in " ".join(result.out.split())
    assert "against a rule: type" in result.out
    other = qc("check", quantized, "--target", "npu")
    assert "npu, which is not on this machine: its rules, checked on the graph" in other.out
    refused = qc("check", quantized, "--target", "npu", "--device-option", "htp_arch=75")
    sentence = "device options are for the runtime of npu, which is not on this machine"
    assert (refused.code, refused.err) == (2, f"qc: error: {sentence}\n")
    document = qc("check", quantized, "--target", "qnn-htp", "--fail-below", "10%")
    assert document.code == 5
    assert "breaks a rule of qnn-htp: the input 'image' has the free dimension 'batch'" in document.err
    assert "of the multiplications, but rules of qnn-htp are broken: static shapes" in " ".join(
        document.out.split()
    )


def test_one_calibration_for_several_targets(qc) -> None:
    result = qc("model.onnx", "--data", "calibration.npz", "--also-for", "tensorrt", "--also-for", "qnn-htp")
    assert result.made == ["model.q.onnx", "model.q.qnn-htp.onnx", "model.q.tensorrt.onnx"]
    assert "also for   tensorrt" in result.err
    assert result.err.count("Add 2/2") == 3, "tensorrt computes an Add as one with a Conv"
    assert (
        "qnn-htp takes no model with free dimensions, and would refuse the result: the input 'image'"
        in result.err
    )
    check = qc("check", "model.q.tensorrt.onnx", "--target", "tensorrt", "--fail-below", "100%")
    assert (check.code, check.made) == (0, [])


def test_a_note_names_every_op_that_formats_keep_in_float(qc) -> None:
    options = ("--target", "ort-cpu", "--set", "tensor:globalaveragepool_1=a16")
    result = qc("model.onnx", "--data", "calibration.npz", *options)
    assert "quantized  15 of 15 ops, 100.0% of the multiplications" in result.err
    reason = "its result 'globalaveragepool_1' is quantized to uint16; ort-cpu takes uint8"
    assert f"{reason}; nor Gemm" in result.err
    qc("check", "model.q.onnx", "--target", "ort-cpu", "--runs", "0", "--json", "check.json")
    ops = json.loads(Path("check.json").read_text())["ops"]
    assert [op["op_type"] for op in ops if op["runs"] == "float"] == ["GlobalAveragePool", "Gemm"]


@pytest.mark.parametrize("format", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_quantized_neither_when_compiled_nor_when_checked(qc, format: str) -> None:
    rules = ("--set", f"Conv={format}", "--set", f"Gemm={format}")
    options = (*rules, "--target", "ort-cpu", "--no-verdict", "--coverage", "coverage.json")
    result = qc("model.onnx", "--data", "calibration.npz", *options)
    said = " ".join(result.err.split())
    shares = "1 of 15 ops, 0.0% of the multiplications"
    assert f"{shares}, 1 of 38 float tensors, 37 more are rounded to 16-bit floats" in said
    assert "Conv 0/10" in said
    assert f"'image' is rounded to {format}; ort-cpu takes uint8" in said
    document = json.loads(Path("coverage.json").read_text())
    assert (document["quantized_tensors"], document["rounded_tensors"]) == (1, 37)
    made = qc("check", "model.q.onnx", "--target", "ort-cpu", "--runs", "0", "--json", "check.json")
    if format == "float16":  # ONNX Runtime has no kernels for the other
        assert not any(op["runs"] == "integer" for op in json.loads(Path("check.json").read_text())["ops"])
        assert "0 of 45 ops" in made.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("model.onnx",), 2, "nothing in the model is quantized to codes: 'qc MODEL.onnx --data DATA"),
        (("nothing.onnx",), 3, "nothing.onnx"),
        (("model.onnx", "--target", "tensorrtx"), 2, "unknown target 'tensorrtx' (did you mean 'tensorrt'?)"),
        (("model.onnx", "--fail-below", "lots"), 2, "'lots' is not a share from 0% to 100%"),
        (("model.onnx", "--fail-below", "101%"), 2, "'101%' is not a share from 0% to 100%"),
        (
            ("model.onnx", "--size", "bach=3"),
            2,
            "--size names 'bach', which no input has (did you mean 'batch'",
        ),
        (("model.onnx", "--json", "model.onnx"), 2, "'model.onnx' is the input model; write to another file"),
        (("model.onnx", "--data", "calibration.npz", "--size", "batch=2"), 2, "--size is for random data"),
        (("model.onnx", "--size", "batch=0"), 2, "is not of the form NAME=N"),
        (("model.onnx", "--runs", "2147483647"), 2, "2147483647 is more than 1000"),
        (("model.onnx", "--threads", "0"), 2, "'0' is not a number of at least 1"),
    ],
)
def test_bad_input(qc, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = qc("check", *arguments)
    assert (result.code, result.made) == (code, [])
    assert result.err.startswith("qc: error: ") and said in result.err and "Traceback" not in result.err


@pytest.mark.parametrize("names", [["ort-cpu"], ["tensorrt", "tensorrt"]])
def test_two_targets_of_one_name(qc, names: list[str]) -> None:
    also = [word for name in names for word in ("--also-for", name)]
    result = qc("model.onnx", "--data", "calibration.npz", "--target", "ort-cpu", *also)
    assert (result.code, result.made) == (2, [])
    assert f"two targets are named '{names[0]}'" in result.err


def test_files_of_targets_are_neither_overwritten_nor_put_elsewhere(qc) -> None:
    Path("own.toml").write_text('name = "own"\nextends = "ort-cpu"\nsummary = "mine"\n')
    Path("far.toml").write_text('name = "a/b"\nextends = "ort-cpu"\nsummary = "mine"\n')
    result = qc("model.onnx", "--data", "calibration.npz", "--also-for", "own.toml", "-o", "own.toml")
    assert (result.code, result.made) == (2, []) and "'own.toml' is a target" in result.err
    result = qc("model.onnx", "--data", "calibration.npz", "--also-for", "far.toml")
    assert (result.code, result.made) == (2, [])
    assert "the name of target 'a/b' cannot be in the name of a file" in result.err


def _dynamic() -> ModelProto:
    text = """g (float[batch, length, 4] x) => (float[batch, length, 4] y, int64[3] s) <float[4, 4] w> {
        m = MatMul(x, w)  y = Tanh(m)  s = Shape(x)
    }"""
    feeds = [{"x": feed["x"]} for feed in random_feeds(parse(text), 2)]
    return qc_package.compile(parse(text), PASSES, data=feeds).model


def test_free_dimensions_need_a_length_to_be_measured(qc) -> None:
    onnx.save(_dynamic(), "dynamic.onnx")
    result = qc("check", "dynamic.onnx")
    assert result.code == 0
    assert "not measured, as shapes or types of inputs are free" in result.err
    told = " ".join(result.out.split())
    assert "1 of 2 ops, 100.0% of the ops that multiply, as not all shapes are known" in told
    assert " 1 of 1 op, " in qc("check", "dynamic.onnx", "--target", "openvino").out, "Shape does not count"
    sized = qc("check", "dynamic.onnx", "--size", "length=5", "--runs", "2")
    assert "1 of 2 ops, 100.0% of the multiplications" in sized.out and "median of 2 runs" in sized.out


def test_ops_are_those_of_the_coverage_the_removed_ones_among_them() -> None:
    ops = tuple(
        CheckedOp(f"Relu {runs}", "Relu", runs, multiplications=0) for runs in ("integer", "float", "removed")
    )
    assert integer_share(Check("ort-cpu", True, "here", ops)) == "1 of 3 ops, 1 removed"


def test_numbers_that_onnx_runtime_gets_wrong_are_an_error(qc) -> None:
    model = parse(
        """g (float[3, 2] x) => (float[3, 2] y)
        <float s = {0.5}, uint8 u = {0}, float[2] several = {0.5, 0.25}, int8[2] zeros = {0, 0},
         int8[2, 2] m = {1, 2, 3, 4}> {
            q = QuantizeLinear(x, s, u)  d = DequantizeLinear(q, s, u)
            w = DequantizeLinear<axis=0>(m, several, zeros)  r = MatMul(d, w)
            p = QuantizeLinear(r, s, u)  y = DequantizeLinear(p, s, u)
        }"""
    )
    onnx.save(model, "wrong.onnx")
    result = qc("check", "wrong.onnx")
    plain = qc_package.runtime.open_session(model, optimize=False)
    fast = qc_package.runtime.open_session(model)
    feed = {"x": np.full((3, 2), 2, np.float32)}
    is_wrong = not np.allclose(plain.run(None, feed)[0], fast.run(None, feed)[0])  # before ONNX Runtime 1.32
    assert result.code == (5 if is_wrong else 0)
    said = "MatMul of 'r' gives wrong numbers: the scales of 'w' are along axis 0"
    assert (said in result.err) == is_wrong


def test_a_recurrent_op_in_float_is_work_in_float(qc) -> None:
    model = recurrent("GRU", 16, 16)
    model.graph.node.add(op_type="MatMul", input=["h", "last"], output=["z"])
    model.graph.initializer.add().CopyFrom(numpy_helper.from_array(np.eye(16, dtype=np.float32), "last"))
    model.graph.output.add().CopyFrom(floats("z", 1, "batch", 16))
    feeds = recurrent_feeds(model)
    compiled = qc_package.compile(model, "w8a8", data=feeds, threads=1)
    found = qc_package.check(compiled.model, feeds=[feeds[0]] * 3)
    works = {op.op_type: (op.runs, op.multiplications) for op in found.ops}
    steps, batch = feeds[0]["x"].shape[:2]
    assert works == {"GRU": ("float", steps * batch * 2 * 16 * 48), "MatMul": ("integer", batch * 16 * 16)}
    gru = found.ops[0]
    assert (gru.rule, found.share < 0.05) == ("stored weights", True)
    assert found.time_share is not None and 0 < found.time_share < 1 - gru.seconds / found.seconds
    summary = compiled.coverage.multiplied  # the free lengths count as 1
    assert (summary.quantized, summary.weights, summary.total) == (256, 2 * 16 * 48, 256 + 2 * 16 * 48)
    assert compiled.coverage.ops == {"GRU": (0, 1), "MatMul": (1, 1)}
    onnx.save(compiled.model, "gru.onnx")
    assert "2 ops" in qc("check", "gru.onnx").out


@pytest.mark.parametrize("target", ["ort-cpu", "npu", "openvino"])
def test_what_depends_on_constants_alone_is_no_work(target: str) -> None:
    """Swin V2 makes its table of biases by products of constants, which are smaller than the table."""
    random = np.random.default_rng(0)
    model = parse(
        """g (float[64, 64] x) => (float[64, 64] y)
        <float[64, 2] places = {0}, float[2, 64] u = {0}, float[64, 64] w = {0}> {
            bias = MatMul(places, u)
            h = MatMul(x, w)
            y = Mul(h, bias)
        }"""
    )
    for tensor in model.graph.initializer:
        array = random.normal(size=tuple(tensor.dims)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    feeds = random_feeds(model, 2)
    pipeline = "w8a8{fold-constants.max_growth=0}"
    compiled = qc_package.compile(model, pipeline, target=target, data=feeds, threads=1)
    assert [node.op_type for node in compiled.model.graph.node].count("MatMul") == 2
    assert compiled.coverage.multiplied.quantized == compiled.coverage.multiplied.total == 64**3
    check = qc_package.check(compiled.model, target, feeds)
    assert check.share == 1 and all(op.runs == "integer" for op in check.counted if op.op_type == "MatMul")


def test_stored_weights_alone_are_something_quantized(qc) -> None:
    model = recurrent("RNN")
    onnx.save(qc_package.compile(model, "w8a8", data=recurrent_feeds(model), threads=1).model, "rnn.onnx")
    shown = qc("check", "rnn.onnx")
    assert shown.code == 0 and "its weights are stored in 8 bits" in " ".join(shown.out.split())


def test_an_lstm_on_codes_runs_in_integers() -> None:
    model = recurrent("LSTM", 64, 64)
    feeds = recurrent_feeds(model)
    found = qc_package.check(qc_package.compile(model, "w8a8", data=feeds, threads=1).model, feeds=feeds[:1])
    assert [(op.kernel, op.runs) for op in found.ops] == [("DynamicQuantizeLSTM", "integer")]
    assert found.share == 1 and found.is_weighted


@pytest.mark.parametrize("pipeline", ["w8", "w4", "w4-block32"])
@pytest.mark.parametrize("target", ["ort-cpu", "qnn-htp"])
def test_weights_alone_break_no_rule(pipeline: str, target: str) -> None:
    model = parse("""g (float[4, 64] x) => (float[4, 64] z) <float[64, 64] w, float[64, 64] v> {
        y = MatMul(x, w)
        r = Relu(y)
        z = MatMul(r, v)
    }""")
    check = qc_package.check(qc_package.compile(model, pipeline).model, target)
    # MatMulNBits rounds data as it comes; smaller matrices without blocks are not written so.
    in_integers = (pipeline, target) == ("w4-block32", "ort-cpu")
    assert check.broken == () and check.share == in_integers
    products = [op for op in check.ops if op.op_type.startswith("MatMul")]
    assert [op.rule for op in products] == ["" if in_integers else "weights alone"] * 2
    # The compiler of the HTP, where it is installed, refuses MatMulNBits of matrices.
    expected = {"integer"} if in_integers else {"float", "refused"} if check.executed else {"float"}
    assert {op.runs for op in products} <= expected


@pytest.mark.parametrize("activation", ["Relu(p)", "Clip(p, least, most)"])
@pytest.mark.parametrize("product", ["MatMul(x, w)", "Gemm(x, w, b)", "MatMul(x, w) p = Add(a, b)"])
def test_products_whose_activation_is_read_in_float_run_in_integers(product: str, activation: str) -> None:
    result = "a" if "Add" in product else "p"
    model = parse(
        f"""g (float[16, 256] x) => (float[16, 256] y)
        <float[256, 256] w, float[256] b, float least = {{0}}, float most = {{6}}> {{
            {result} = {product} r = {activation} y = Exp(r)
        }}"""
    )
    feeds = random_feeds(model, 4)
    check = qc_package.check(qc_package.compile(model, "w8a8", data=feeds, threads=1).model)
    assert {op.kernel for op in check.ops if op.runs == "integer"} in ({"QGemm"}, {"MatMulIntegerToFloat"})


def test_a_product_of_stored_weights_that_leaves_data_as_it_is_runs_in_float() -> None:
    model = parse("g (float[4, 64] x) => (float[4, 64] y) <float[64, 64] w> { y = MatMul(x, w) }")
    found = qc_package.check(qc_package.compile(model, "w4-block32{insert-qdq.products=exact}").model)
    assert [(op.op_type, op.runs) for op in found.ops] == [("MatMulNBits", "float")]


def test_the_summary_and_the_check_count_the_same_ops() -> None:
    model = parse(
        """g (float[2, 8] x) => (float[2, 4] y) <float[8, 4] w, float[4] b> {
            p = MatMul(x, w)  t = Tanh(p)  m = Mul(t, b)  s = Shape(p)  y = Reshape(m, s)
        }"""
    )
    compiled = qc_package.compile(model, "w8a8", data=random_feeds(model, 4), threads=1)
    found = qc_package.check(compiled.model)
    assert len(found.counted) == compiled.coverage.total_ops
    assert {op.op_type for op in found.counted if op.runs == "float"} >= {"Tanh", "Mul"}
    assert found.share == 1 and found.is_weighted


def test_channels_without_weights_break_no_rule() -> None:
    """Codes of their biases are so large that float32 does not hold them all."""
    random = np.random.default_rng(0)
    model = parse("""g (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
        <float[16, 16, 1, 1] w, float[16] b> { y = Conv(x, w, b) }""")
    weight = random.normal(0, 1, (16, 16, 1, 1)).astype(np.float32)
    weight[::2] = 0
    bias = random.normal(0, 1, 16).astype(np.float32)
    bias[::2] *= 1e-11
    for tensor, array in zip(model.graph.initializer, (weight, bias), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    compiled = qc_package.compile(model, PASSES, data=random_feeds(model, 4))
    (stored,) = [numpy_helper.to_array(one) for one in compiled.model.graph.initializer if one.data_type == 6]
    assert np.abs(stored).max() > 2**24
    check = qc_package.check(compiled.model)
    assert check.broken == () and check.share == 1


def test_what_runs_as_part_of_a_float_convolution_is_explained_with_it() -> None:
    model = parse("""g (float[1, 64, 56, 56] x) => (float[1, 20, 56, 56] y)
        <float[64, 64, 3, 3] v, float[20, 64, 1, 1] u, float[20, 1, 11, 11] w> {
            a = Conv<pads = [1, 1, 1, 1]>(x, v)
            b = Conv(a, u)
            t = Tanh(b)
            c = Conv<group = 20, pads = [5, 5, 5, 5]>(t, w)
            r = Relu(c)
            y = Tanh(r)
        }""")
    target = load_target("ort-cpu")
    assert target.costs is not None
    weighed = target.model_copy(update={"costs": target.costs.model_copy(update={"quick": 0.0})})
    compiled = qc_package.compile(model, PASSES, data=random_feeds(model, 2), target=weighed)
    check = qc_package.check(compiled.model)
    runs = {op.op_type: op.runs for op in check.ops}
    assert check.broken == () and 0 < check.share < 1, runs


def test_the_time_of_a_kernel_that_runs_several_ops_counts_once() -> None:
    ops = [
        CheckedOp(f"{op_type} 'y'", op_type, "integer", "MatMulNBits", runs_as="fused", seconds=2.0)
        for op_type in ("MatMul", "Add")
    ]
    found = Check("ort-cpu", True, "here", tuple(ops), seconds=3.0, rest=(("Cast", 1.0),))
    assert seconds_by_type(found) == {"MatMul": 2.0, "Add": 0.0, "Cast": 1.0}
