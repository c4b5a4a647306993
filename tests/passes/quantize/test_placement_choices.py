"""Weights, biases, choices of the user, and quantizers that were there before."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact, run_model
from support.placement import axis, of_value, of_weight, placed, reason, value

import qc
from qc.ir import lift
from qc.ir.errors import DemandError, UsageError
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.quant_table import Site
from qc.passes.quantize.insert_quantizers import InsertQuantizers

TARGETS = pytest.mark.parametrize("target", ["ort-cpu", "npu"])

# -- channel axes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shape", "expected"),
    [
        ("y = MatMul(x, w)", "4, 3", 1),
        ("y = Gemm(x, w)", "4, 3", 1),
        ("y = Gemm<transB = 1>(x, w)", "3, 4", 0),
        ("y = Gemm<transA = 1>(t, w)", "4, 3", 1),
        ("y = Conv(v, w)", "3, 4, 1, 1", 0),
        ("y = Conv<group = 2>(v, w)", "6, 2, 1, 1", 0),
        ("y = Conv<group = 4>(v, w)", "4, 1, 3, 3", 0),
        ("y = ConvTranspose(v, w)", "4, 3, 1, 1", 1),
        ("y = ConvTranspose<group = 2>(v, w)", "4, 3, 1, 1", None),
    ],
)
def test_the_channel_axis_of_a_weight(line: str, shape: str, expected: int | None) -> None:
    inputs = "float[2, 4] x, float[4, 2] t, float[1, 4, 5, 5] v"
    text = f"g ({inputs}) => (float[] y) <float[{shape}] w> {{ {line} }}"
    proto = parse(text)
    feeds = random_feeds(proto)
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq,to-simulation", proto, "npu", feeds)
    weight = of_weight(ir, "y")
    assert axis(weight) == expected
    qdq, simulation = (run_model(artifact(context, name), feeds[0])["y"] for name in ("qdq", "simulation"))
    np.testing.assert_allclose(qdq, simulation, atol=1e-6)
    np.testing.assert_allclose(qdq, run_model(proto, feeds[0])["y"], atol=0.3)


def test_a_matmul_weight_of_three_dimensions() -> None:
    model = placed("g (float[2, 5, 4] x) => (float[2, 5, 3] y) <float[2, 4, 3] w> { y = MatMul(x, w) }")
    assert axis(of_weight(model, "y")) is None  # ONNX Runtime refuses scales per channel of a stack


def test_a_matmul_weight_of_one_dimension() -> None:
    model = placed("g (float[2, 4] x) => (float[2] y) <float[4] w> { y = MatMul(x, w) }")
    assert axis(of_weight(model, "y")) is None


# -- biases ----------------------------------------------------------------------------------------


def biased(weight: np.ndarray, bias: np.ndarray) -> tuple[Model, np.ndarray, np.ndarray]:
    """The quantized model of a Gemm, and its float and its QDQ output on the data it was calibrated on."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
    proto = model_of(nodes, [floats("x", 1, 4)], [floats("y", 1, 2)], weights)
    feeds = [{"x": np.asarray([[1, -1, 0.5, 0.25]], np.float32)}]
    ir, context, _ = apply(f"{QUANTIZE},insert-qdq", proto, "npu", feeds)
    expected = run_model(proto, feeds[0])["y"]
    return ir, expected, run_model(artifact(context, "qdq"), feeds[0])["y"]


def test_the_scale_of_a_bias_is_derived() -> None:
    weight = np.asarray([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    ir, expected, result = biased(weight, np.asarray([0.5, -0.25], np.float32))
    bias, data, kernel = of_weight(ir, "y", 2), of_weight(ir, "y", 0), of_weight(ir, "y", 1)
    assert bias and data and kernel and bias.encoding and data.encoding and kernel.encoding
    assert str(bias.spec) == "int32 symmetric channel(0) derived"
    np.testing.assert_array_equal(bias.encoding.scale, data.encoding.scale * kernel.encoding.scale)
    np.testing.assert_allclose(result, expected, atol=0.05)


def test_a_bias_that_does_not_fit_makes_the_weight_scale_larger() -> None:
    weight = np.asarray([[1, 1e-7], [1, 1e-7], [1, 1e-7], [1, 1e-7]], np.float32)
    ir, expected, result = biased(weight, np.asarray([0.5, 1000], np.float32))
    bias, kernel = of_weight(ir, "y", 2), of_weight(ir, "y", 1)
    assert bias and kernel and bias.encoding and kernel.encoding
    codes = np.abs(np.asarray([0.5, 1000]) / bias.encoding.scale.astype(np.float64))
    assert codes.max() <= 2**30 * 1.001
    assert kernel.encoding.scale[0] == np.float32(1 / 127)
    assert kernel.encoding.scale[1] > 1e-7
    np.testing.assert_allclose(result, expected, atol=1000 / 255)


@TARGETS
def test_a_bias_stays_float_where_no_integer_grid_fits(target: str) -> None:
    text = """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w, float[2] b> {
        y = Conv(x, w, b)
    }"""
    proto = parse(text)
    pipeline = QUANTIZE.replace("insert-quantizers", "insert-quantizers{activation=float16}")
    ir = apply(pipeline, proto, target, random_feeds(proto))[0]
    assert of_weight(ir, "y", 2) is None
    assert "no grids that it could share" in reason(ir, "b")


@pytest.mark.parametrize(("name", "data"), [("w", 2.0**-8), ("b", 17_472.0)])
def test_weights_and_biases_that_float16_has_not_stay_float(name: str, data: float) -> None:
    arrays = {"w": np.eye(4, 2, -2, np.float32), "b": np.ones(2, np.float32)}
    arrays[name].flat[1] = -70_000
    constants = [numpy_helper.from_array(array, key) for key, array in arrays.items()]
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    proto = model_of([node], [floats("x", 1, 4)], [floats("y", 1, 2)], constants)
    compiled = qc.compile(proto, "fp16", threads=1)
    assert reason(compiled.ir, name) == "a constant that holds numbers float16 does not have"
    feed = {"x": np.full((1, 4), data, np.float32)}
    found, expected = (run_model(model, feed)["y"] for model in (compiled.model, proto))
    np.testing.assert_allclose(found, expected, rtol=2**-10)


# -- choices ---------------------------------------------------------------------------------------

TWO = """g (float[N, 2, 4, 4] x) => (float[N, 2, 4, 4] y) <float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2> {
    a = Conv(x, w1)
    r = Relu(a)
    y = Conv(r, w2)
}"""


@TARGETS
@pytest.mark.parametrize("option", ["skip_ops=[Conv]", "skip_nodes=[first]"])
def test_skipped_ops_stay_float(target: str, option: str) -> None:
    proto = parse(TWO)
    proto.graph.node[0].name = "first"
    pipeline = PLACE.replace("insert-quantizers", f"insert-quantizers{{{option}}}")
    model = apply(pipeline, proto, target)[0]
    assert not model.quant.sites_on(value(model, "x")) and not model.quant.sites_on(value(model, "w1"))
    assert reason(model, "x").startswith("read by Conv 'first'")
    assert f"{option.split('=')[0]} names it" in reason(model, "a")
    assert (of_weight(model, "y") is None) == ("skip_ops" in option)


@TARGETS
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("skip_ops=[Convv]", "skip_ops names 'Convv', which no op has .did you mean 'Conv'"),
        ("skip_ops=[Softmax]", "skip_ops names 'Softmax', which no op has"),
        ("skip_nodes=[frist]", "skip_nodes names 'frist', which no op has .did you mean 'first'"),
    ],
)
def test_a_choice_that_matches_nothing_is_an_error(target: str, option: str, message: str) -> None:
    proto = parse(TWO)
    proto.graph.node[0].name = "first"
    with pytest.raises(UsageError, match=message):
        apply(PLACE.replace("insert-quantizers", f"insert-quantizers{{{option}}}"), proto, target)


def test_an_add_beside_a_skipped_op_does_not_run_in_integers() -> None:
    text = """g (float[N, 2, 4, 4] x) => (float[N, 2, 4, 4] y)
    <float[2, 2, 1, 1] w1, float[2, 2, 1, 1] w2, float[2, 2, 1, 1] w3> {
        a = Conv(x, w1)
        b = Conv(x, w2)
        s = Add(a, b)
        y = Conv(s, w3)
    }"""
    proto = parse(text)
    for node in proto.graph.node:
        node.name = node.output[0]
    pipeline = PLACE.replace("insert-quantizers", "insert-quantizers{skip_nodes=[a]}")
    model = apply(pipeline, proto)[0]
    assert not model.quant.sites_on(value(model, "a"))
    assert of_value(model, "b") and of_value(model, "s")


@pytest.mark.parametrize(
    "text", ["g (float[4] x) => (float[4] y) { y = Exp(x) }", "g (int64 i) => (int64 j) { j = Neg(i) }"]
)
def test_a_model_in_which_nothing_can_be_quantized(text: str) -> None:
    proto = parse(text)
    with pytest.raises(DemandError, match="nothing was quantized"):
        qc.compile(proto, "w8a8", data=random_feeds(proto))
    allowed = qc.compile(proto, "w8a8", data=random_feeds(proto), allow_unquantized=True)
    assert allowed.coverage.quantized == 0


# -- quantizers that were there before -------------------------------------------------------------


def test_frozen_quantizers_are_left_alone() -> None:
    text = """g (float[1, 2] x, float[1, 2] v) => (float[1, 4] y, float[1, 2] z) <float[4, 2] w> {
        a = Neg(x)
        b = Abs(v)
        y = Concat<axis = 1>(a, b)
        r = Relu(y)
        z = MatMul(r, w)
    }"""
    model = lift(parse(text))
    spec = QuantSpec.of("uint8")
    encoding = Encoding(spec, np.asarray(0.125), np.asarray(7))
    chosen = {name: model.quant.place(Site(value(model, name)), spec, "by hand") for name in ("a", "x")}
    for quantizer in chosen.values():
        model.quant.calibrate(quantizer, encoding, "by hand")
        model.quant.freeze(quantizer)
    apply(f"{PLACE},calibrate,insert-qdq", model, "npu", random_feeds(parse(text)))
    for name, quantizer in chosen.items():
        assert of_value(model, name) is quantizer
        assert quantizer.encoding is encoding and quantizer.spec == spec
    assert of_value(model, "b") is of_value(model, "y") is not chosen["a"]


def test_a_frozen_grid_behind_a_data_mover() -> None:
    text = """g (float[1, 2] x) => (float[2, 2] y) <float[1, 2] w> {
        a = Transpose(x)
        y = MatMul(a, w)
    }"""
    model = lift(parse(text))
    spec = QuantSpec.of("uint8")
    frozen = model.quant.place(Site(value(model, "x")), spec, "by hand")
    model.quant.calibrate(frozen, Encoding(spec, np.asarray(0.5), np.asarray(3)), "by hand")
    model.quant.freeze(frozen)
    apply(f"{PLACE},calibrate", model, "npu", random_feeds(parse(text)))
    assert of_value(model, "x") is frozen and of_value(model, "a") is not frozen


@pytest.mark.parametrize(("format", "message"), [("int24", "int24 is for biases"), ("uint32", "no uint32")])
@pytest.mark.parametrize("name", ["weight", "activation"])
def test_formats_of_biases_are_refused(name: str, format: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"option '{name}' of pass 'insert-quantizers': .*{message}"):
        InsertQuantizers(**{name: format})
