"""Which tensors get which quantizers: the shapes of graph that other quantizers got wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact, check, run_model
from support.placement import axis, of_value, of_weight, op, placed, reason, value

from qc.ir.quant.spec import PerTensor

TARGETS = pytest.mark.parametrize("target", ["ort-cpu", "npu"])


# -- several outputs -------------------------------------------------------------------------------

EXPOSED = """g (float[N, 2, 4, 4] x) => (float[N, 2, 4, 4] c1, float[N, 2, 4, 4] y)
<float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2> {
    c1 = Conv(x, w1)
    r = Relu(c1)
    y = Conv(r, w2)
}"""


@TARGETS
def test_an_exposed_tensor_keeps_its_quantizer(target: str) -> None:
    model = placed(EXPOSED, target)
    assert of_value(model, "x") and of_value(model, "c1") and of_value(model, "r") and of_value(model, "y")
    assert of_value(model, "c1") is not of_value(model, "r")
    assert axis(of_weight(model, "c1")) == axis(of_weight(model, "y")) == 0


@TARGETS
@pytest.mark.parametrize(
    ("first", "second"),
    [("hidden_output", "hidden_output_1"), ("y", "y_updated"), ("out", "out_qdq"), ("a", "a_scale")],
)
def test_similar_output_names_stay(target: str, first: str, second: str) -> None:
    text = re.sub(r"\b(c1|y)\b", lambda found: {"c1": first, "y": second}[found[0]], EXPOSED)
    proto = parse(text)
    feeds = random_feeds(proto)
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq,to-simulation", proto, target, feeds)
    assert of_value(ir, first) and of_value(ir, second)
    for name in ("qdq", "simulation"):
        made = artifact(context, name)
        assert [output.name for output in made.graph.output] == [first, second]
        check(made)
        assert set(run_model(made, feeds[0])) == {first, second}


@TARGETS
def test_an_output_in_front_of_a_relu_keeps_its_negative_numbers(target: str) -> None:
    text = """g (float[4] x) => (float[4] m, float[4] y) <float[4] k = {1, 2, 3, 4}> {
        m = Mul(x, k)
        y = Relu(m)
    }"""
    proto = parse(text)
    feeds = [{"x": np.asarray([-1, 1, -0.5, 0.25], np.float32)}]
    _, context, _ = apply(f"{QUANTIZE},insert-qdq", proto, target, feeds)
    results = run_model(artifact(context, "qdq"), feeds[0])
    expected = feeds[0]["x"] * np.asarray([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(results["m"], expected, atol=0.05)
    np.testing.assert_allclose(results["y"], np.maximum(expected, 0), atol=0.05)


def test_an_exposed_tensor_inside_a_norm() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] shown, float[N, 4] y)
    <float[4] gamma, float two = {2}, float tiny = {0.00001}> {
        mean = ReduceMean<axes = [-1]>(x)
        d = Sub(x, mean)
        square = Pow(d, two)
        variance = ReduceMean<axes = [-1]>(square)
        guarded = Add(variance, tiny)
        std = Sqrt(guarded)
        shown = Div(d, std)
        y = Mul(shown, gamma)
    }"""
    text = '<ir_version: 8, opset_import: ["" : 17]>' + text
    model = placed(text, "npu")
    assert of_value(model, "shown") and of_value(model, "y") and of_value(model, "x")
    assert not model.quant.sites_on(value(model, "mean"))


# -- joins behind what cannot be quantized ---------------------------------------------------------


@TARGETS
def test_a_join_behind_a_cast_from_integers(target: str) -> None:
    text = """g (float[N, 4] x, int64[N, 4] ids) => (float[N, 3] y) <float[4, 4] w, float[8, 3] w2> {
        a = MatMul(x, w)
        twice = Add(ids, ids)
        f = Cast<to = 1>(twice)
        c = Concat<axis = 1>(a, f)
        y = MatMul(c, w2)
    }"""
    model = placed(text, target)
    assert not model.quant.sites_on(value(model, "ids"))
    assert not model.quant.sites_on(value(model, "twice"))
    assert of_value(model, "x") is not of_value(model, "c")
    if target == "npu":
        assert of_value(model, "a") is of_value(model, "f") is of_value(model, "c")


def test_a_join_behind_an_op_of_another_domain() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Magic", ["a"], ["m"], domain="vendor"),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Concat", ["m", "b"], ["y"], axis=0),
    ]
    proto = model_of(nodes, [floats("x", 2)], [floats("y", 4)], domains=["vendor"])
    proto.graph.value_info.extend([floats("a", 2), floats("m", 2), floats("b", 2)])
    model = apply(PLACE, proto, "npu")[0]
    assert of_value(model, "m") is of_value(model, "b") is of_value(model, "y")
    assert of_value(model, "x") is not of_value(model, "y")
    assert of_value(model, "a") is None or of_value(model, "a") is not of_value(model, "y")


def test_a_join_behind_a_gather_does_not_touch_the_indices() -> None:
    text = """g (float[9, 4] x, int64[N] ids, float[N, 4] v) => (float[N, 8] y) {
        a = Neg(x)
        picked = Gather(a, ids)
        y = Concat<axis = 1>(picked, v)
    }"""
    model = placed(text, "npu")
    assert not model.quant.sites_on(value(model, "ids"))
    assert of_value(model, "a") is of_value(model, "picked") is of_value(model, "y") is of_value(model, "v")


@TARGETS
def test_integer_joins_are_left_alone(target: str) -> None:
    text = """g (float[N, 4] x) => (float[] y)
    <float[4, 4] w, float[2, 2] w2, int64 zero = {0}, int64[1] first = {0}, int64[1] two = {2}> {
        a = MatMul(x, w)
        shape = Shape(a)
        n = Gather(shape, zero)
        rows = Unsqueeze(n, first)
        target = Concat<axis = 0>(rows, two, two)
        r = Reshape(a, target)
        y = MatMul(r, w2)
    }"""
    model = placed(text, target)
    for name in ("shape", "n", "rows", "target", "zero", "two"):
        assert not model.quant.sites_on(value(model, name))
    assert of_value(model, "a") is of_value(model, "r") is not None


@TARGETS
def test_numbers_computed_from_shapes_stay_float(target: str) -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> {
        shape = Shape(x)
        size = Cast<to = 1>(shape)
        root = Sqrt(size)
        scale = ReduceMax<keepdims = 0>(root)
        a = MatMul(x, w)
        y = Div(a, scale)
    }"""
    model = placed(text, target)
    assert "from shapes or constants alone" in reason(model, "root")


def test_a_join_with_an_exposed_input_keeps_that_input() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] a, float[N, 8] y) {
        a = Neg(x)
        b = Exp(x)
        y = Concat<axis = 1>(a, b)
    }"""
    model = placed(text, "npu")
    assert of_value(model, "a") is not of_value(model, "y")
    assert model.quant.of_use(value(model, "a"), op(model, "y"), 0) is of_value(model, "y")
    assert of_value(model, "b") is of_value(model, "y")


def test_bounded_functions_that_are_joined() -> None:
    text = """g (float[N, 4] x) => (float[N, 8] y, float[N, 8] z) {
        s = Sigmoid(x)
        t = Softmax(x)
        c = Concat<axis = 1>(s, t)
        y = Relu(c)
        h = Tanh(x)
        i = Sigmoid(x)
        z = Concat<axis = 1>(h, i)
    }"""
    model = placed(text, "npu")
    joined, mixed = of_value(model, "c"), of_value(model, "z")
    assert joined is not None and joined.spec.fixed_range == (0.0, 1.0)
    assert of_value(model, "s") is of_value(model, "t") is joined
    assert mixed is not None and mixed.spec.fixed_range is None
    feeds = random_feeds(parse(text))
    calibrated = apply(QUANTIZE, parse(text), "npu", feeds)[0].quant
    assert all(quantizer.encoding is not None for quantizer in calibrated.quantizers())


# -- sharing ---------------------------------------------------------------------------------------


@TARGETS
def test_a_shared_weight_has_one_quantizer(target: str) -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> {
        a = MatMul(x, w)
        b = Relu(a)
        y = MatMul(b, w)
    }"""
    model = placed(text, target)
    assert of_weight(model, "a") is of_weight(model, "y")
    assert axis(of_weight(model, "a")) == 1


@TARGETS
def test_a_weight_that_is_read_along_two_axes_has_one_scale(target: str) -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> {
        a = Gemm(x, w)
        b = Relu(a)
        y = Gemm<transB = 1>(b, w)
    }"""
    model = placed(text, target)
    assert of_weight(model, "a") is of_weight(model, "y")
    quantizer = of_weight(model, "a")
    assert quantizer is not None and isinstance(quantizer.spec.granularity, PerTensor)


@TARGETS
def test_a_shared_bias_follows_each_of_its_inputs(target: str) -> None:
    text = """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
    <float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2, float[2] b> {
        a = Conv(x, w1, b)
        y = Conv(a, w2, b)
    }"""
    proto = parse(text)
    feeds = random_feeds(proto)
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq,to-simulation", proto, target, feeds)
    for name in ("a", "y"):
        bias, weight = of_weight(ir, name, 2), of_weight(ir, name, 1)
        data = of_weight(ir, name, 0)
        assert bias and weight and data and bias.encoding and weight.encoding and data.encoding
        np.testing.assert_array_equal(bias.encoding.scale, data.encoding.scale * weight.encoding.scale)
    assert of_weight(ir, "a", 2) is not of_weight(ir, "y", 2)
    expected = run_model(proto, feeds[0])["y"]
    for name in ("qdq", "simulation"):
        np.testing.assert_allclose(run_model(artifact(context, name), feeds[0])["y"], expected, atol=0.2)


# -- residual streams ------------------------------------------------------------------------------


def test_a_residual_add_between_convolutions_runs_in_integers() -> None:
    text = """g (float[N, 2, 4, 4] x) => (float[N, 2, 4, 4] y)
    <float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2, float[2, 2, 1, 1] w3> {
        a = Conv(x, w1)
        b = Conv(a, w2)
        s = Add(a, b)
        r = Relu(s)
        y = Conv(r, w3)
    }"""
    model = placed(text)
    assert of_value(model, "a") and of_value(model, "b") and of_value(model, "r")
    assert not model.quant.sites_on(value(model, "s"))


def test_the_residual_stream_of_a_transformer_stays_float_on_cpu() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y)
    <float[4] g1, float[4] b1, float[4, 4] w1, float[4, 4] w2> {
        n = LayerNormalization(x, g1, b1)
        a = MatMul(n, w1)
        s = Add(x, a)
        m = LayerNormalization(s, g1, b1)
        c = MatMul(m, w2)
        y = Add(s, c)
    }"""
    model = placed(text)
    assert "is not between such" in reason(model, "s")
    assert "is not between such" in reason(model, "y")
    assert "a reader runs in float" in reason(model, "a")
    assert of_value(model, "n") and of_value(model, "m")
    assert "which runs in float" in reason(model, "g1")
    everywhere = placed(text, "npu")
    assert of_value(everywhere, "s") and of_value(everywhere, "a") and of_value(everywhere, "y")


GATE = """g (float[N, 6, 8] x) => (float[N, 6, 8] y)
<float[8, 16] wg, float[8, 16] wu, float[16, 8] wd, int64[3] shape = {0, 6, 16}> {
    gate = MatMul(x, wg)
    up = MatMul(x, wu)
    s = Sigmoid(gate)
    silu = Mul(gate, s)
    joined = Mul(silu, up)
    flat = Reshape(joined, shape)
    y = MatMul(flat, wd)
}"""


def test_gates_behind_products_stay_float_on_cpu() -> None:
    model = placed(GATE, "ort-cpu")
    for name in ("gate", "up", "s", "silu"):
        assert of_value(model, name) is None
    assert "as quick in float behind products" in reason(model, "silu")
    assert of_value(model, "x") and of_weight(model, "y", 0) and of_weight(model, "y")


def test_a_gate_of_products_on_a_convolution_runs_in_integers() -> None:
    text = """g (float[N, 2, 4, 4] x) => (float[N, 2, 4, 4] y)
    <float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2, float[2, 2] w3, int64[4] image = {0, 2, 1, 1}> {
        c = Conv(x, w1)
        pool = GlobalAveragePool(c)
        row = Flatten(pool)
        g = Gemm(row, w3)
        s = Sigmoid(g)
        scale = Reshape(s, image)
        scaled = Mul(c, scale)
        y = Conv(scaled, w2)
    }"""
    model = placed(text, "ort-cpu")
    for name in ("c", "g", "s", "scaled"):
        assert of_value(model, name), name


@TARGETS
def test_a_recurrent_op_without_its_first_output(target: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "k"], ["a"]),
        helper.make_node("LSTM", ["a", "w", "r"], ["", "h", ""], hidden_size=2),
    ]
    shapes = {"k": (3, 4), "w": (1, 8, 4), "r": (1, 8, 2)}
    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    proto = model_of(nodes, [floats("x", 5, 1, 3)], [floats("h", 1, 1, 2)], weights)
    model, context, _ = apply(f"{QUANTIZE},insert-qdq", proto, target, random_feeds(proto))
    assert of_weight(model, "a") and bool(of_weight(model, "h")) == (target == "ort-cpu")
    assert ("weights alone" if target == "ort-cpu" else "recurrent") in reason(model, "h")
    check(artifact(context, "qdq"))


@pytest.mark.parametrize(("target", "has_grid"), [("qnn-htp", True), ("ort-cpu", False)])
def test_what_an_output_alone_reads_is_moved_in_integers_where_all_runs_so(
    target: str, has_grid: bool
) -> None:
    """The HTP computed the last Gather or Reshape of many models in float, and gave up RT-DETR for one."""
    model = placed(
        """g (float[2, 8, 4] x, int64[3] i) => (float[2, 8, 4] h, float[2, 3, 4] y) <float[4, 4] w> {
            a = MatMul(x, w)  h = Relu(a)  y = Gather<axis = 1>(h, i)
        }""",
        target,
    )
    assert (of_value(model, "y") is not None) == has_grid
    assert not has_grid or of_value(model, "y") is of_value(model, "h")
