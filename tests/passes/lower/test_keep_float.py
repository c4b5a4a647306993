"""Float weights and biases beside quantized data, which ONNX Runtime would quantize by itself."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, check, run_model

import qc
from qc.ir.onnx.lower import serialize

# Those of a weight with two large columns that cancel.
NUMBERS = ", ".join(str({0: 500, 1: -500}.get(i % 8, 0) + (i * 37 % 19 - 9) / 8) for i in range(64))

# The weights C and T (of convolutions), M and N stay float.
PRODUCTS = {
    "convolution": "h = Conv(x, v)  y = Conv(h, C, B)",
    "relu": "h = Conv(x, v)  z = Conv(h, C, B)  y = Relu(z)",
    "pooled": """h = Conv(x, v)  p = MaxPool<kernel_shape = [1, 1]>(h)  z = Conv(p, C, B)
        y = MaxPool<kernel_shape = [2, 2]>(z)""",
    "multiplied": "h = Conv(x, v)  a = Conv(h, C)  b = Mul(a, s)  z = Add(b, s)  y = Conv(z, v)",
    "transposed": "h = Conv(x, v)  z = ConvTranspose(h, T, B)  y = Conv(z, v)",
    "gemm": "r = Reshape(x, rows)  h = Gemm(r, u)  z = Gemm(h, M, B)  y = Gemm(z, u)",
    "matmul": "r = Reshape(x, rows)  h = Gemm(r, u)  a = MatMul(h, M)  z = Add(a, B)  y = Gemm(z, u)",
    "body": f"""y = If(c) <
        then_branch = a () => (float[2, 8, 6, 6] p) {{
            N = Constant<value = float[8, 8, 1, 1] {{{NUMBERS}}}>()
            k = Conv(x, v)  z = Conv(k, N, B)  p = Conv(z, v)
        }},
        else_branch = b () => (float[2, 8, 6, 6] q) {{ q = Conv(x, v) }}
    >""",
}
STEPS = f"{PLACE},set-precision{{rules=['tensor~[CTMN]=off']}},calibrate,insert-qdq"


def network(product: str) -> ModelProto:
    """Two large rows of the float weight cancel, as they meet equal data; what is left are the small rows."""
    nodes = PRODUCTS[product]
    shape = "rows, 8" if "rows" in nodes else "2, 8, height, width"
    names = [name for name in ("v", "u", "C", "T", "M", "B", "s") if f" {name}" in nodes]
    rank = {"v": "8, 8, 1, 1", "C": "8, 8, 1, 1", "T": "8, 8, 1, 1", "u": "8, 8", "M": "8, 8", "B": "8"}
    weights = "".join(f", float[{rank.get(name, '8, 1, 1')}] {name}" for name in names)
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 8, 6, 6] x, bool c) => (float[{shape}] y)
            <int64[2] rows = {{-1, 8}}{weights}> {{ {nodes} }}"""
    )
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        by_input = array.swapaxes(0, 1) if tensor.name in ("C", "u") else array
        if tensor.name in ("C", "T", "M"):
            by_input[0], by_input[1] = by_input[0] + 500, by_input[1] - 500
        elif tensor.name in ("v", "u"):
            by_input[1] = by_input[0]
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def errors(made: ModelProto, model: ModelProto, feeds: list[dict[str, np.ndarray]]) -> float:
    """The largest difference to the float model, in parts of its largest result."""
    pairs = [(run_model(made, feed, optimize=True)["y"], run_model(model, feed)["y"]) for feed in feeds]
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


@needs_exact_sums
@pytest.mark.parametrize("product", PRODUCTS)
def test_a_float_weight_stays_float(product: str) -> None:
    model = network(product)
    feeds = [feed | {"c": np.array(True)} for feed in random_feeds(model, 3)]
    made = artifact(apply(STEPS, model, feeds=feeds)[1], "qdq")
    check(made)
    assert errors(made, model, feeds) < 0.06
    again = apply("import-qdq,insert-qdq", made)[1]
    assert serialize(artifact(again, "qdq")) == serialize(made)


@needs_exact_sums
@pytest.mark.parametrize(("bias", "fits"), [(0.25, True), (64.0, False)])
def test_a_float_bias_stays_float_that_integers_cannot_hold(bias: float, fits: bool) -> None:
    """That of a channel whose weights are tiny, which without the bias has a grid of tiny steps."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 8, 6, 6] x) => (float[2, 8, 6, 6] y) <float[8, 8, 1, 1] v, float[8] B> {
            y = Conv(x, v, B)
        }"""
    )
    arrays = {tensor.name: numpy_helper.to_array(tensor).copy() for tensor in model.graph.initializer}
    arrays["v"][0] *= 1e-6
    arrays["B"][0] = bias
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    feeds = random_feeds(model, 3)
    steps = f"{PLACE},set-precision{{rules=['tensor:B=off']}},calibrate,insert-qdq"
    made = artifact(apply(steps, model, feeds=feeds)[1], "qdq")
    assert errors(made, model, feeds) < 0.02
    assert ("LeakyRelu" in [node.op_type for node in made.graph.node]) != fits


ACTIVATED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[16, 128] x) => (float[16, 128] y)
    <float[128, 128] v, float low = {{0.0}}, float high = {{6.0}}> {{
        p = MatMul(x, v)
        a = {activation}
        y = {reader}
    }}"""


@needs_exact_sums
@pytest.mark.parametrize("reader", ["Softplus(a)", "Concat<axis = 1>(a)"])
@pytest.mark.parametrize("activation", ["Relu(p)", "Clip(p, low, high)"])
def test_a_product_runs_in_integers_before_an_activation_that_stays_float(
    activation: str, reader: str
) -> None:
    """ONNX Runtime looks for a QuantizeLinear behind the activation, and finds none."""
    model = parse(ACTIVATED.format(activation=activation, reader=reader))
    feeds = random_feeds(model, 3)
    made = artifact(apply(f"{PLACE},calibrate,insert-qdq", model, feeds=feeds)[1], "qdq")
    assert qc.check(made, feeds=feeds).share == 1.0
    assert errors(made, model, feeds) < 0.06
    again = apply("import-qdq,insert-qdq", made)[1]
    assert serialize(artifact(again, "qdq")) == serialize(made)


SUMMED = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, 64] x, float[rows, 64] d) => (float[rows, 64] y)
    <float[64, 64] v, float[4, 64] c, float[4, 1] r, float[64] b> {{
        {nodes}
        y = Tanh(s)
    }}"""


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        ("p = MatMul(x, v)  s = Add(p, d)", 1),
        ("p = MatMul(x, v)  s = Add(d, p)", 1),
        ("p = MatMul(x, v)  q = MatMul(d, v)  s = Add(p, q)", 2),
        ("p = MatMul(x, v)  s = Add(p, c)", 1),
        ("p = MatMul(x, v)  s = Add(p, r)", 1),
        ("p = MatMul(x, v)  s = Add(p, b)", 0),
        ("p = MatMul(x, v)  q = Neg(p)  s = Add(p, q)", 0),
        ("p = Gemm(x, v)  s = Sum(p, d)", 1),
        ("p = Gemm(x, v)  s = Add(p, d)", 0),
        ("p = Gemm(x, v, d)  s = Neg(p)", 0),
        ("p = Gemm<alpha = 0.5, beta = 2.0>(x, v, b)  s = Neg(p)", 0),
    ],
)
def test_a_product_to_which_data_is_added_runs_in_integers(nodes: str, kept: int) -> None:
    """ONNX Runtime makes a Gemm of both, and has none in integers that adds data."""
    model = parse(SUMMED.format(nodes=nodes))
    feeds = random_feeds(model, 3, size=4)
    made = artifact(apply(f"decompose-ops,{PLACE},calibrate,insert-qdq", model, feeds=feeds)[1], "qdq")
    assert [node.op_type for node in made.graph.node].count("LeakyRelu") == kept
    assert qc.check(made, feeds=feeds).share == 1.0
    expected, found = (run_model(each, feeds[0])["y"] for each in (model, made))
    assert np.abs(expected - found).mean() < 0.02
    again = apply("import-qdq,insert-qdq", made)[1]
    assert serialize(artifact(again, "qdq")) == serialize(made)


@pytest.mark.parametrize("opset", [9, 10, 13])
def test_a_bias_that_is_data_is_rounded_by_what_the_opset_has(opset: int) -> None:
    """ONNX Runtime adds a Round for it, and would not load a model whose opset has none."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1, 8, 6, 6] x, float[8] b) => (float[1, 8, 6, 6] y)
    <float[8, 8, 1, 1] v> {{ h = Conv(x, v, b)  y = Conv(h, v) }}""")
    feeds = random_feeds(model, 2)
    compiled = qc.compile(model, f"{PLACE},calibrate,insert-qdq", data=feeds, target="ort-cpu")
    assert compiled.model.opset_import[0].version == max(opset, 11)
    expected, found = (run_model(each, feeds[0], optimize=True)["y"] for each in (model, compiled.model))
    assert np.abs(expected - found).mean() < 0.1 * np.abs(expected).mean()
