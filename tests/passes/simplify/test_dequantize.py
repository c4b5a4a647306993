"""Models that are quantized already: what they are told to be, and the float models that are made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnxruntime import quantization as ort
from support.machine import needs_exact_sums
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import run_model
from support.quantized_models import contrib, dynamic, few_bits, lstm, static

import qc
from qc.ir import lift
from qc.ir.errors import ModelError
from qc.ir.facts.quantized_form import Form, form_of_op, quantized_form

CONVOLUTIONS = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[N, 3, 8, 8] x) => (float[N, 5] y)
    <float[8, 3, 3, 3] w, float[8] b, float[8, 8, 1, 1] w2, float[8] b2, float[8, 5] v, float[5] c,
     float zero = {0}, float six = {6}>
{
    conv = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    relu = Relu(conv)
    pooled = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(relu)
    second = Conv(pooled, w2, b2)
    clipped = Clip(second, zero, six)
    sum = Add(clipped, pooled)
    joined = Concat<axis = 1>(sum, clipped)
    part = AveragePool<kernel_shape = [2, 2]>(joined)
    first, rest = Split<axis = 1>(part)
    gated = Sigmoid(first)
    mean = GlobalAveragePool(gated)
    flat = Flatten(mean)
    y = Gemm(flat, v, c)
}
"""
PRODUCTS = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[N, 6, 16] x, int64[N] token) => (float[N, 6, 8] y, float[N, 16] z)
    <float[16, 16] q, float[16, 16] k, float[16, 8] v, float[8] b, float[40, 16] table,
     float eighth = {0.125}>
{
    queries = MatMul(x, q)
    keys = MatMul(x, k)
    turned = Transpose<perm = [0, 2, 1]>(keys)
    scores = MatMul(queries, turned)
    scaled = Mul(scores, eighth)
    weights = Softmax(scaled)
    values = MatMul(x, v)
    biased = Add(values, b)
    y = MatMul(weights, biased)
    z = Gather(table, token)
}
"""


def sqnr(exact: np.ndarray, found: np.ndarray) -> float:
    noise = float(np.square(exact - found, dtype=np.float64).sum())
    return 10 * np.log10(float(np.square(exact, dtype=np.float64).sum()) / noise) if noise else np.inf


def assert_dequantized(quantized: ModelProto, original: ModelProto, decibels: float = 20) -> ModelProto:
    """Dequantizes, and compares with the quantized model, and with the float model that it was made of."""
    result = qc.compile(quantized, "dequantize", threads=1)
    assert not result.notes, result.notes
    made = result.float_model
    onnx.checker.check_model(made, full_check=True)
    assert quantized_form(lift(made).graphs()) is None
    for feed in random_feeds(made, 3, seed=7):
        found, expected = run_model(made, feed), run_model(quantized, feed, optimize=True)
        exact = run_model(original, feed)
        for name in found:
            assert sqnr(expected[name], found[name]) > decibels, (name, "quantized")
            assert sqnr(exact[name], found[name]) > decibels, (name, "float")
    return made


@needs_exact_sums
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", [ort.QuantFormat.QDQ, ort.QuantFormat.QOperator], ids=["qdq", "operators"])
def test_static(form: ort.QuantFormat, per_channel: bool, tmp_path: Path) -> None:
    model = parse(CONVOLUTIONS)
    quantized = static(model, tmp_path, form, per_channel=per_channel)
    found = quantized_form(lift(quantized).graphs())
    assert found is not None
    assert found.form is (Form.QDQ if form is ort.QuantFormat.QDQ else Form.OPERATORS)
    made = assert_dequantized(quantized, model)
    counts = Counter(node.op_type for node in made.graph.node)
    assert counts["Conv"] == 2 and counts["Gemm"] + counts["MatMul"] == 1
    assert "Relu" in {node.op_type for node in quantized.graph.node} or counts["Relu"] >= 1


@needs_exact_sums
@pytest.mark.parametrize("weights", [ort.QuantType.QInt8, ort.QuantType.QUInt8], ids=["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic(weights: ort.QuantType, per_channel: bool, tmp_path: Path) -> None:
    model = parse(PRODUCTS)
    quantized = dynamic(
        model,
        tmp_path,
        weight_type=weights,
        per_channel=per_channel,
        extra_options={"MatMulConstBOnly": False},
    )
    kinds = {node.op_type for node in quantized.graph.node}
    assert {"MatMulInteger", "DynamicQuantizeLinear"} <= kinds
    found = quantized_form(lift(quantized).graphs())
    assert found is not None and found.form is Form.DYNAMIC and not found.has_pairs
    made = assert_dequantized(quantized, model)
    assert Counter(node.op_type for node in made.graph.node)["MatMul"] == 5
    assert [node.op_type for node in made.graph.node if "DynamicQuantize" in node.op_type] == []


def test_dynamic_convolution(tmp_path: Path) -> None:
    model = parse(CONVOLUTIONS)
    quantized = dynamic(model, tmp_path, op_types_to_quantize=["Conv"], weight_type=ort.QuantType.QUInt8)
    assert "ConvInteger" in {node.op_type for node in quantized.graph.node}
    made = assert_dequantized(quantized, model)
    assert Counter(node.op_type for node in made.graph.node)["Conv"] == 2


@needs_exact_sums
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_lstm(per_channel: bool, tmp_path: Path) -> None:
    model = lstm()
    quantized = dynamic(model, tmp_path, per_channel=per_channel, op_types_to_quantize=["LSTM"])
    assert [node.op_type for node in quantized.graph.node] == ["DynamicQuantizeLSTM"]
    made = assert_dequantized(quantized, model)
    assert [node.op_type for node in made.graph.node] == ["LSTM"]


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("QAttention", contrib("Attention", ["x", "w", "b"], {"y": (2, 6, 16)}, num_heads=2)),
        (
            "QEmbedLayerNormalization",
            contrib(
                "EmbedLayerNormalization",
                ["tokens", "segments", "words", "places", "kinds", "gamma", "beta"],
                {"y": (2, 6, 16), "mask": (2,)},
            ),
        ),
    ],
)
def test_dynamic_operators_of_onnxruntime(kind: str, model: ModelProto, tmp_path: Path) -> None:
    del model.graph.output[1:]
    quantized = dynamic(model, tmp_path)
    assert kind in {node.op_type for node in quantized.graph.node}
    made = assert_dequantized(quantized, model)
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("has_bias", [False, True])
def test_fused_dynamic_products(has_bias: bool) -> None:
    bias = ["b"] if has_bias else []
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "s", "z"]),
        helper.make_node(
            "MatMulIntegerToFloat",
            ["codes", "w", "s", "scale", "z", "zero", *bias],
            ["y"],
            domain="com.microsoft",
        ),
        helper.make_node(
            "DynamicQuantizeMatMul", ["x", "w", "scale", "zero", *bias], ["z2"], domain="com.microsoft"
        ),
    ]
    rng = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(rng.integers(-50, 50, (16, 8)).astype(np.int8), "w"),
        numpy_helper.from_array(rng.uniform(0.01, 0.02, 8).astype(np.float32), "scale"),
        numpy_helper.from_array(np.zeros(8, np.int8), "zero"),
        numpy_helper.from_array(rng.normal(size=8).astype(np.float32), "b"),
    ]
    outputs = [floats("y", 4, 8), floats("z2", 4, 8)]
    quantized = model_of(nodes, [floats("x", 4, 16)], outputs, weights, domains=["com.microsoft"])
    made = assert_dequantized(quantized, quantized)
    counts = Counter(node.op_type for node in made.graph.node)
    assert counts == {"MatMul": 2, **({"Add": 2} if has_bias else {})}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("has_zeros", "has_bias"), [(False, False), (True, True)])
def test_weights_of_few_bits(bits: int, has_zeros: bool, has_bias: bool) -> None:
    quantized = few_bits(bits, has_zeros, has_bias)
    found = quantized_form(lift(quantized).graphs())
    assert found is not None and found.form is Form.WEIGHTS and not found.has_pairs
    made = qc.compile(quantized, "dequantize", threads=1).float_model
    assert [node.op_type for node in made.graph.node if node.op_type != "Add"] == ["MatMul", "Gather"]
    feed = {"x": random_feeds(made, 1)[0]["x"], "token": np.array([0, 63, 5])}
    results, expected = run_model(made, feed), run_model(quantized, feed)
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pipeline", ["w8a8", "w4a8", "w8a16"])
def test_results_of_qc(pipeline: str) -> None:
    model = parse(CONVOLUTIONS)
    compiled = qc.compile(model, pipeline, data=random_feeds(model, 8), threads=1)
    for quantized in (compiled.model, compiled.simulation):
        made = qc.compile(quantized, "dequantize", threads=1).float_model
        assert quantized_form(lift(made).graphs()) is None
        feed = random_feeds(made, 1)[0]
        exact = run_model(compiled.float_model, feed)["y"]
        assert sqnr(exact, run_model(made, feed)["y"]) > (8 if pipeline == "w4a8" else 30)


def of_one_operator(op_type: str, of_model: int, **attributes: object) -> ModelProto:
    """An operator of ONNX Runtime on the codes of one tensor."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(op_type, ["q", "s", "z", "t", "z"], ["r"], domain="com.microsoft", **attributes),
        helper.make_node("DequantizeLinear", ["r", "t", "z"], ["y"]),
    ]
    numbers = {"s": np.float32(0.02), "t": np.float32(1 / 256), "z": np.uint8(0)}
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
    outputs = [floats("y", None, None, None)]
    return model_of(nodes, [floats("x", 2, 3, 4)], outputs, constants, of_model, ["com.microsoft"])


@pytest.mark.parametrize(
    ("opset", "own", "axis", "is_float"),
    [
        (17, 11, 1, False),
        (17, 11, 2, True),
        (17, 11, -1, True),
        (17, 13, 1, True),
        (12, 13, 1, False),
        (12, 13, None, True),
    ],
)
def test_a_softmax_means_the_axes_of_its_own_opset(
    opset: int, own: int, axis: int | None, is_float: bool
) -> None:
    given = {} if axis is None else {"axis": axis}
    model = of_one_operator("QLinearSoftmax", opset, opset=own, **given)
    result = qc.compile(model, "dequantize", threads=1)
    assert any("ops were left that compute with codes" in note for note in result.notes) != is_float
    feed = {"x": np.random.default_rng(0).uniform(0, 4, (2, 3, 4)).astype(np.float32)}
    found, expected = run_model(result.float_model, feed)["y"], run_model(model, feed)["y"]
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("opset", [17, 18])
def test_a_mean_has_its_axes_as_its_opset_has_them(opset: int) -> None:
    model = of_one_operator("QLinearReduceMean", opset, axes=[1, 2], keepdims=1)
    made = qc.compile(model, "dequantize", threads=1).float_model
    onnx.checker.check_model(made, full_check=True)
    assert made.graph.node[0].op_type == "ReduceMean"
    feed = {"x": np.random.default_rng(0).uniform(0, 4, (2, 3, 4)).astype(np.float32)}
    mean = feed["x"].mean((1, 2), keepdims=True)  # ONNX Runtime does not run the operator on a CPU
    np.testing.assert_allclose(run_model(made, feed)["y"], mean, rtol=1e-5)


@pytest.mark.parametrize("form", ["qdq", "operators", "dynamic", "weights"])
def test_one_sentence_for_all_forms(form: str, tmp_path: Path) -> None:
    model = parse(CONVOLUTIONS)
    if form == "weights":
        quantized = few_bits(4, has_zeros=False, has_bias=False)
    elif form == "dynamic":
        quantized = dynamic(model, tmp_path)
    else:
        kind = ort.QuantFormat.QDQ if form == "qdq" else ort.QuantFormat.QOperator
        quantized = static(model, tmp_path, kind)
    feeds = random_feeds(quantized, 2)
    with pytest.raises(ModelError) as caught:  # before there is any data
        qc.compile(quantized, threads=1)
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert text.startswith("the model is quantized already, ") and "--passes dequantize" in text
    assert ("import-qdq" in text) == (form == "qdq")
    anew = qc.compile(qc.compile(quantized, "dequantize", threads=1).float_model, data=feeds, threads=1)
    assert anew.coverage.quantized >= 2


def test_forms_of_ops() -> None:
    assert form_of_op("", "QLinearConv") is Form.OPERATORS
    assert form_of_op("com.microsoft", "QLinearAdd") is Form.OPERATORS
    assert form_of_op("com.microsoft", "QAttention") is Form.DYNAMIC
    assert form_of_op("vendor", "QLinearConv") is None
    assert form_of_op("", "Conv") is None
    assert form_of_op("qc", "FakeQuantize") is Form.SIMULATION


def test_an_activation_is_found_behind_an_operator_of_onnx_runtime() -> None:
    """ONNX tells no type of what QLinearAdd makes, nor of codes behind it."""
    quantized = parse("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
    <float s = {0.05}, int8 zero = {0}, int8 low = {-128}, int8[2, 2, 1, 1] w = {18, -14, -12, 16}> {
        a = QuantizeLinear(x, s, zero)
        b = com.microsoft.QLinearAdd(a, s, zero, a, s, zero, s, zero)
        c = QLinearConv(b, s, zero, w, s, zero, s, low)
        y = DequantizeLinear(c, s, low)
    }""")
    made = qc.compile(quantized, "dequantize", threads=1).float_model
    assert [node.op_type for node in made.graph.node] == ["Add", "Conv", "Relu"]
    feed = random_feeds(quantized, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(quantized, feed)["y"], atol=0.2)


def test_codes_as_pytorch_exports_them() -> None:
    """Codes are cast to the type that they have, and zero points of biases are computed."""
    quantized = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
    <float s = {0.05}, uint8 zero = {7}, int8[2, 2, 1, 1] w = {18, -14, -12, 16}, float[2] sw = {0.1, 0.2},
     int8[2] zw = {0, 0}, int32[2] b = {40, -60}, float[2] sb = {0.005, 0.01}, int64[1] channels = {2}> {
        same = Identity(s)
        a = QuantizeLinear(x, s, zero)
        cast = Cast<to = 2>(a)
        d = DequantizeLinear(cast, same, zero)
        f = DequantizeLinear<axis = 0>(w, sw, zw)
        zeros = ConstantOfShape<value = int32[1] {0}>(channels)
        zb = Cast<to = 6>(zeros)
        bias = DequantizeLinear<axis = 0>(b, sb, zb)
        y = Conv(d, f, bias)
    }""")
    made = qc.compile(quantized, "dequantize", threads=1)
    assert [node.op_type for node in made.float_model.graph.node] == ["Conv"] and not made.notes
