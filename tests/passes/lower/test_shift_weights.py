"""Weights one step lower, with zero points of -1, for targets that want it: the same results, and back."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, check, run_model

from qc.ir import lift
from qc.ir.onnx.lower import serialize
from qc.ir.rewriter import Rewriter
from qc.passes.lower.qdq.shift_weights import unshift_weights

NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 32, 5, 5] x) => (float[1, 8, 5, 5] y) <
    float[32, 32, 3, 3] long, float[8, 32, 1, 1] short, float[32, 1, 3, 3] deep
> {
    a = Conv<pads = [1, 1, 1, 1]>(x, long)
    b = Conv<pads = [1, 1, 1, 1], group = 32>(a, deep)
    y = Conv(b, short)
}"""


def lowered(text: str, target: str = "ort-cpu-amx", options: str = "") -> ModelProto:
    model = parse(text)
    context = apply(f"{QUANTIZE},insert-qdq{options}", model, target, random_feeds(model))[1]
    made = artifact(context, "qdq")
    check(made)
    return made


def weights(model: ModelProto) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Codes and zero points by the name of the weight."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.input[0].removesuffix("_quantized"): (constants[node.input[0]], constants[node.input[2]])
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }


def test_long_sums_are_shifted_and_nothing_else() -> None:
    shifted, plain = weights(lowered(NETWORK)), weights(lowered(NETWORK, "ort-cpu"))
    for name, (codes, zero_points) in shifted.items():
        step = int(name == "long")
        np.testing.assert_array_equal(codes, plain[name][0] - np.int8(step))
        np.testing.assert_array_equal(zero_points, plain[name][1] - np.int8(step))
    assert shifted["long"][0].min() == -128
    names = [
        {t.name for t in lowered(NETWORK, target).graph.initializer if not t.name.endswith("_zero_point")}
        for target in ("ort-cpu-amx", "ort-cpu")
    ]
    assert names[0] == names[1]
    off = weights(lowered(NETWORK, options="{shift_weights=false}"))
    assert not off["long"][1].any()


@needs_exact_sums
@pytest.mark.parametrize("optimize", [False, True])
def test_results_stay_the_same(optimize: bool) -> None:
    shifted, plain = lowered(NETWORK), lowered(NETWORK, "ort-cpu")
    for feed in random_feeds(parse(NETWORK), 3, seed=4):
        results = run_model(shifted, feed, optimize)["y"]
        np.testing.assert_array_equal(results, run_model(plain, feed, optimize)["y"])


def test_it_comes_back_as_a_symmetric_grid() -> None:
    shifted = lowered(NETWORK)
    ir, context, _ = apply("import-qdq,insert-qdq", shifted, "ort-cpu-amx")
    assert serialize(artifact(context, "qdq")) == serialize(shifted)
    quantizers = {site.value.name: ir.quant.get(site) for site in ir.quant.sites()}
    long = quantizers["long"]
    assert long is not None and long.encoding is not None
    assert long.spec.symmetric and not long.encoding.zero_point.any()
    plain = weights(artifact(apply("import-qdq,insert-qdq", shifted, "ort-cpu")[1], "qdq"))
    for name, (codes, zero_points) in weights(lowered(NETWORK, "ort-cpu")).items():
        np.testing.assert_array_equal(plain[name][0], codes)
        np.testing.assert_array_equal(plain[name][1], zero_points)


@needs_exact_sums
def test_with_few_channels_it_comes_back_as_well() -> None:
    """A kernel so large that its three channels are padded, and the padded weights shifted."""
    text = NETWORK.replace("[1, 32, 5, 5] x", "[1, 3, 5, 5] x").replace("[32, 32, 3, 3]", "[32, 3, 11, 11]")
    text = text.replace("pads = [1, 1, 1, 1]>(x", "pads = [5, 5, 5, 5]>(x")
    made = lowered(text)
    assert weights(made)["long"][0].shape == (32, 4, 11, 11)
    ir, context, _ = apply("import-qdq,insert-qdq", made, "ort-cpu-amx")
    value = ir.graph.value_named("long")
    assert value is not None and value.type.shape == (32, 3, 11, 11)
    assert serialize(artifact(context, "qdq")) == serialize(made)
    for feed in random_feeds(parse(text)):
        np.testing.assert_array_equal(
            run_model(made, feed, True)["y"], run_model(lowered(text, "ort-cpu"), feed)["y"]
        )


def test_weights_without_elements_are_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 0, 4, 4] x) => (float[1, 2, 4, 4] y) <float one = {1}, uint8 zero = {0},
        int8[2, 0, 1, 1] w = {}, float[2] ones = {1, 1}, int8[2] minus = {-1, -1}
    > {
        q = QuantizeLinear(x, one, zero)
        d = DequantizeLinear(q, one, zero)
        v = DequantizeLinear<axis = 0>(w, ones, minus)
        y = Conv(d, v)
    }"""
    model = lift(parse(text))
    unshift_weights(model, Rewriter(model))
    weight = model.graph.value_named("w")
    assert weight is not None and weight.type.shape == (2, 0, 1, 1)
