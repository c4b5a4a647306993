"""OpenVINO computes what the QDQ model says: graphs of which it had other numbers, or which it refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse

import qc
from qc.compiler.compiled import Compiled
from qc.runtime import model_inputs, open_session
from qc.runtime.devices.device import version_of
from qc.runtime.devices.known import DEVICES, open_device

pytestmark = pytest.mark.skipif(version_of(DEVICES["openvino"]) is None, reason="openvino is not installed")

# By what OpenVINO does with it; in brackets what it had.
GRAPHS = {
    "products of few rows are one kernel (random numbers)": """g (float[4, 16] x) => (float[4, 8] y)
        <float[16, 16] w, float[16, 8] v> { m = MatMul(x, w)  y = MatMul(m, v) }""",
    "and behind a factor": """g (float[4, 16] x) => (float[4, 8] y)
        <float[16, 16] w, float[16] b, float two = {2}, float[16, 8] v> {
            m = MatMul(x, w)  a = Add(m, b)  d = Div(a, two)  r = Relu(d)  y = MatMul(r, v)
        }""",
    "and behind a bias of zeros": """g (float[4, 16] x) => (float[4, 8] y)
        <float[16, 4] w, float[4] b = {0, 0, 0, 0}, float[4, 8] v> { m = Gemm(x, w, b)  y = MatMul(m, v) }""",
    "and behind a number that is added": """g (float[4, 16] x) => (float[4, 8] y)
        <float[16, 16] w, float two = {2}, float[16, 8] v> {
            m = MatMul(x, w)  a = Add(m, two)  y = MatMul(a, v)
        }""",
    "and with a product of data between": """g (float[4, 16] x) => (float[4, 8] y)
        <float[16, 16] w, float[16, 8] v> {
            m = MatMul(x, w)  r = Sigmoid(m)  p = Mul(r, m)  y = MatMul(p, v)
        }""",
    "scales move across a Reshape (-13 dB)": """g (float[1, 24, 16] x) => (float[1, 24, 24, 1] y)
        <float[16, 24] w, int64[4] shape = {0, 0, -1, 1}> {
            m = MatMul(x, w)  r = Reshape(m, shape)  y = Relu(r)
        }""",
    "of other lengths (refused)": """g (float[1, 32, 16] x) => (float[1, 32, 24, 1] y)
        <float[16, 24] w, int64[1] two = {2}> {
            m = MatMul(x, w)  u = Unsqueeze(m, two)  t = Transpose<perm = [0, 1, 3, 2]>(u)  y = Relu(t)
        }""",
    "across a pool (refused)": """g (float[2, 4, 8, 8] x) => (float[2, 4, 4, 8] y)
        <float[8, 16] w> { m = MatMul(x, w)  y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(m) }""",
    "joined rows are refused": """g (float[1, 8, 16] x) => (float[1, 16, 8] y)
        <float[16, 8] w> { t = Tanh(x)  j = Concat<axis = 1>(x, t)  y = MatMul(j, w) }""",
    "and columns that become rows": """g (float[1, 8, 16] x) => (float[1, 32, 8] y)
        <float[8, 8] w> {
            t = Tanh(x)  j = Concat<axis = 2>(x, t)  u = Transpose<perm = [0, 2, 1]>(j)  y = MatMul(u, w)
        }""",
    "a product of data is joined for a convolution (22 dB)": """g (float[1, 16, 8] x) => (float[1, 8, 16] y)
        <float[8, 24, 1] w> {
            t = Transpose<perm = [0, 2, 1]>(x)  m = MatMul(x, t)  j = Concat<axis = 1>(m, t)  y = Conv(j, w)
        }""",
    "a strided convolution of points is one of channels last (another shape)": """
        g (float[1, 4, 8, 6] x) => (float[1, 8, 3, 4] y)
        <float[8, 4, 1, 1] w> { c = Conv<strides = [2, 2]>(x, w)  y = Transpose<perm = [0, 1, 3, 2]>(c) }""",
    "ReduceMax rounds its result (12 dB)": """g (float[2, 16, 8] x) => (float[2, 8] y)
        <int64[1] one = {1}, float[8, 8] w> { r = ReduceMax<keepdims = 0>(x, one)  y = MatMul(r, w) }""",
    "a ReduceLogSumExp of opset 17 (over all axes)": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 16, 8] x) => (float[2, 8] y) <float[8, 8] w> {
            m = MatMul(x, w)  y = ReduceLogSumExp<axes = [1], keepdims = 0>(m)
        }""",
    "a ReduceL1 likewise": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 16, 8] x) => (float[2, 8] y) <float[8, 8] w> {
            m = MatMul(x, w)  y = ReduceL1<axes = [1], keepdims = 0>(m)
        }""",
    "a transform of real data (a dimension more)": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 20, 8] x) => (float[1, 11, 8, 2] y) <float[8, 8] w, int64[1] last = {-1}> {
            m = MatMul(x, w)  u = Unsqueeze(m, last)  y = DFT<axis = 1, onesided = 1>(u)
        }""",
    "ReduceMin likewise (0 dB)": """g (float[2, 16, 7, 7] x) => (float[2, 8] y)
        <int64[2] axes = {2, 3}, float[16, 8] w> {
            r = ReduceMin<keepdims = 0>(x, axes)  y = MatMul(r, w)
        }""",
    "ReduceMax is less than 0 by what is rounded (24 dB)": """g (float[2, 16, 8] x) => (float[2, 16, 8] y)
        <int64[1] two = {2}, float[1, 8] w> {
            n = Neg(x)  r = ReduceMax(n, two)  s = Sigmoid(r)  y = MatMul(s, w)
        }""",
    "and where it is joined": """g (float[2, 16, 8] x) => (float[2, 17, 4] y)
        <int64[1] one = {1}, float[8, 4] w> {
            r = ReduceMin(x, one)  s = Tanh(r)  j = Concat<axis = 1>(s, x)  y = MatMul(j, w)
        }""",
    "a mean of codes over few channels (4 dB)": """g (float[8, 4, 16] x) => (float[8, 4, 1] y)
        <float[4, 4, 3] w> { c = Conv(x, w)  y = GlobalAveragePool(c) }""",
    "and over more of them (9 dB)": """g (float[2, 16, 8] x) => (float[2, 8, 1] y)
        <float[8, 16, 1] w> { c = Conv(x, w)  y = GlobalAveragePool(c) }""",
    "and a maximum of what a convolution makes (3 dB)": """g (float[8, 4, 16] x) => (float[8, 4, 1] y)
        <float[4, 4, 3] w, int64[1] two = {2}> { c = Conv(x, w)  r = Relu(c)  y = ReduceMax(r, two) }""",
    "and over channels": """g (float[8, 4, 16] x) => (float[8, 1, 14] y)
        <float[4, 4, 3] w, int64[1] one = {1}> { c = Conv(x, w)  y = ReduceMean(c, one) }""",
    "an average counts codes of 0 (-5 dB)": """g (float[1, 4, 8, 8] x) => (float[1, 8, 6, 6] y)
        <float[4, 4, 1, 1] w, float[8, 4, 3, 3] v> {
            c = Conv(x, w)
            p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(c)
            y = Conv(p, v)
        }""",
    "a factor below 0 moves in front of Relu (1 dB)": """g (float[1, 4, 8, 8] x) => (float[1, 8, 8, 8] y)
        <float[8, 4, 1, 1] w, float[8, 1, 1] s, float[8, 8, 3, 3] v> {
            c = Conv(x, w)  r = Relu(c)  m = Mul(r, s)  y = Conv<pads = [1, 1, 1, 1]>(m, v)
        }""",
    "and in front of MaxPool (-2 dB)": """g (float[1, 4, 8, 8] x) => (float[1, 8, 6, 6] y)
        <float[8, 4, 1, 1] w, float[1, 8, 1, 1] s, float[8, 8, 1, 1] v> {
            c = Conv(x, w)  r = Sigmoid(c)  p = MaxPool<kernel_shape = [3, 3]>(r)  m = Mul(p, s)
            y = Conv(m, v)
        }""",
    "and behind an AveragePool (-4 dB)": """g (float[1, 4, 8, 8] x) => (float[1, 8, 4, 4] y)
        <float[1, 4, 1, 1] s, float[8, 4, 1, 1] v> {
            p = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x)  m = Mul(p, s)  y = Conv(m, v)
        }""",
    "and where it is subtracted": """g (float[1, 4, 16] x) => (float[1, 4, 8] y)
        <float one = {1}, float[4, 8] w> {
            t = Transpose<perm = [0, 2, 1]>(x)  m = MatMul(x, t)  r = Relu(m)  d = Sub(one, r)
            y = MatMul(d, w)
        }""",
    "a product of data is shifted behind an activation (5 dB)": """g (float[1, 4, 16] x) => (float[1, 4, 8] y)
        <float[4, 1] b, float[4, 8] w> {
            t = Transpose<perm = [0, 2, 1]>(x)  m = MatMul(x, t)  s = Sigmoid(m)  a = Add(s, b)
            y = MatMul(a, w)
        }""",
    "what two ops read is scaled twice where a length is free (7 dB)": """
        g (float[N, 4, 8, 8] x) => (float[N, 8, 6, 6] y)
        <float[8, 4, 3, 3] w> { c = Conv(x, w)  p = GlobalAveragePool(c)  s = Sigmoid(p)  y = Mul(c, s) }""",
    "and a product of data": """g (float[N, 8, 16] x) => (float[N, 8, 8] y) {
            t = Transpose<perm = [0, 2, 1]>(x)  m = MatMul(x, t)  r = Relu(m)  y = Add(r, m)
        }""",
    "and in front of a normalization": """g (float[N, 4, 8, 8] x) => (float[N, 8, 6, 6] y)
        <float[8, 4, 3, 3] w, float[6] one = {1, 1, 1, 1, 1, 1}> {
            c = Conv(x, w)  y = LayerNormalization(c, one)
        }""",
    "a factor below 0 is rounded where a length is free (-2 dB)": """
        g (float[N, 4, 8, 8] x) => (float[N, 8, 6, 6] y)
        <float[4, 1, 1] s, float[8, 4, 3, 3] w> { m = Mul(x, s)  y = Conv(m, w) }""",
    "or is for rows of a product (refused)": """g (float[N, 16, 12] x) => (float[N, 8, 12] y)
        <float[12, 12] w, float[16, 1] s, float[8, 16, 1] v> {
            m = MatMul(x, w)  r = Relu(m)  p = Mul(r, s)  y = Conv(p, v)
        }""",
    "or a product is subtracted from numbers for rows (refused)": """
        g (float[N, 16, 12] x) => (float[N, 8, 24] y)
        <float[12, 24] w, float[16, 1] s, float[8, 16, 1] v> {
            m = MatMul(x, w)  d = Sub(s, m)  y = Conv(d, v)
        }""",
    "rows of a product have factors where a length is free (0 dB)": """
        g (float[N, 8, 12] x) => (float[N, 8, 24] y)
        <float[12, 24] w, float[24] b, float[1, 8, 1] s> {
            r = Relu(x)  m = MatMul(r, w)  a = Add(m, b)  y = Mul(a, s)
        }""",
    "or a normalization": """g (float[N, 8, 12] x) => (float[N, 8, 24] y)
        <float[12, 24] w, float[8] s, float[8] b, float[8] mean, float[8] var = {1, 2, 1, 2, 1, 2, 1, 2}> {
            r = Relu(x)  m = MatMul(r, w)  y = BatchNormalization(m, s, b, mean, var)
        }""",
    "a constant comes first where a length is free (10 dB)": """
        g (float[N, 4, 8, 8] x) => (float[N, 8, 6, 6] y)
        <float[4, 1, 1] b, float[8, 4, 3, 3] w> { a = Add(b, x)  y = Conv(a, w) }""",
    "a product of data is scaled by a vector (random numbers)": """
        g (float[1, 8, 6, 16] x) => (float[1, 8, 6, 8] y)
        <float[6] v, float[6, 8] w> {
            t = Transpose<perm = [0, 1, 3, 2]>(x)  m = MatMul(x, t)  p = Mul(m, v)  y = MatMul(p, w)
        }""",
    "and behind an activation (ends the compiler)": """g (float[2, 4, 8, 8] x) => (float[2, 4, 8, 8] y)
        <float[1, 4, 1, 1] v, float[8, 8] w> {
            t = Transpose<perm = [0, 1, 3, 2]>(x)  m = MatMul(x, t)  s = Sigmoid(m)
            p = Mul(s, v)  y = MatMul(p, w)
        }""",
    "and behind a number (87 %)": """g (float[1, 8, 6, 16] x) => (float[1, 8, 6, 8] y)
        <float k = {0.25}, float[6] v, float[6, 8] w> {
            t = Transpose<perm = [0, 1, 3, 2]>(x)  m = MatMul(x, t)  s = Mul(m, k)
            p = Mul(s, v)  y = MatMul(p, w)
        }""",
    "a length is read from a convolution in front of its bias (18 dB)": """
        g (float[N, 4, 8, 8] x) => (float[N, 8] y)
        <float[8, 4, 3, 3] w, float[8] b, float[8, 8] v, float[1, 8] first, int64[1] zero = {0},
         int64[1] eight = {8}, int64[2] flat = {0, 8}> {
            c = Conv(x, w, b)  r = Relu(c)  p = GlobalAveragePool(r)  f = Reshape(p, flat)  m = MatMul(f, v)
            s = Shape(x)  n = Gather(s, zero)  to = Concat<axis = 0>(n, eight)  h = Expand(first, to)
            k = MatMul(h, v)  y = Add(m, k)
        }""",
    "and for a range": """g (float[N, 4, 8, 8] x) => (float[N, 8] y)
        <float[8, 4, 3, 3] w, float[8] b, float[8, 8] v, float[9, 8] table, int64 zero = {0}, int64 one = {1},
         int64[2] flat = {0, 8}> {
            c = Conv(x, w, b)  r = Relu(c)  p = GlobalAveragePool(r)  f = Reshape(p, flat)  m = MatMul(f, v)
            s = Shape<start = 0, end = 1>(r)  n = Squeeze(s)  k = Range(zero, n, one)  h = Gather(table, k)
            y = Add(m, h)
        }""",
    "and where a length is computed for a Reshape as well": """g (float[N, 4, 8, 8] x) => (float[N, 8] y)
        <float[8, 4, 3, 3] w, float[8] b, float[8, 8] v, int64 one = {1}, int64[1] front = {0},
         int64[2] lengths = {8, 36}, int64[1] six = {36}, int64[1] eight = {8}, int64[1] two = {2}> {
            c = Conv(x, w, b)  r = Relu(c)  s = Shape(r)  zero = Sub(one, one)  n = Gather(s, zero)
            u = Unsqueeze(n, front)  to = Concat<axis = 0>(u, lengths)  f = Reshape(r, to)
            t = Transpose<perm = [2, 0, 1]>(f)
            a = Shape(t)  i = Gather(a, one)  o = Unsqueeze(i, front)  l = Concat<axis = 0>(o, eight)
            h = ConstantOfShape<value = float[1] {0.5}>(l)
            m = MatMul(t, v)  g0 = ReduceMean<keepdims = 0>(m, front)  k = MatMul(h, v)  y = Add(g0, k)
        }""",
    "an expanded constant that is joined is rounded (-2 dB)": """g (float[N, 16] x) => (float[N, 8] y)
        <float[1, 16] first, float[32, 8] w, int64[1] zero = {0}, int64[1] length = {16}> {
            s = Shape(x)  n = Gather(s, zero)  to = Concat<axis = 0>(n, length)  h = Expand(first, to)
            j = Concat<axis = 1>(x, h)  y = MatMul(j, w)
        }""",
    "GlobalMaxPool rounds its result (12 %)": """g (float[2, 16, 8, 8] x) => (float[2, 8, 1, 1] y)
        <float[8, 16, 1, 1] w> { r = GlobalMaxPool(x)  y = Conv(r, w) }""",
}


BATCH = 5  # of a free length


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_its_numbers_are_those_of_the_model(graph: str) -> None:
    model = _drawn(parse(graph))
    compiled, feeds = _compiled(model)
    made, meant = _results(compiled, feeds[0])
    np.testing.assert_allclose(made, meant, atol=5e-3 * np.abs(meant).max())


@pytest.mark.parametrize("activation", ["Tanh", "Relu"])
def test_a_constant_that_data_is_convolved_with_is_float(activation: str) -> None:
    """As generators begin: of codes it made wrong numbers, and what kernels that are data make is float."""
    model = _drawn(
        parse(f"""g (float[1, 32, 1, 1] x) => (float[1, 4, 8, 8] y)
    <float[32, 32, 3, 3] w, float[1, 32, 8, 8] start, float[4, 32, 1, 1] v> {{
        k = Mul(w, x)  a = Conv<pads = [1, 1, 1, 1]>(start, k)  r = {activation}(a)  y = Conv(r, v)
    }}""")
    )
    compiled, feeds = _compiled(model)
    made, meant = _results(compiled, feeds[0])
    np.testing.assert_allclose(made, meant, atol=0.1 * np.std(meant))
    result = next(value for value in compiled.ir.graph.values() if value.name == "a")
    assert "does not run it with a weight that is data" in str(compiled.ir.quant.why_not(result))


@pytest.mark.parametrize(
    ("graph", "kept"),
    [
        ("products of few rows are one kernel (random numbers)", "LeakyRelu"),
        ("a factor below 0 moves in front of Relu (1 dB)", "LeakyRelu"),
        ("ReduceMax rounds its result (12 dB)", "ReduceMean"),
        ("GlobalMaxPool rounds its result (12 %)", "GlobalAveragePool"),
    ],
)
def test_what_keeps_ops_apart_is_gone_when_the_model_is_read(graph: str, kept: str) -> None:
    """So that a result that is compiled again is the same."""
    compiled, _ = _compiled(_drawn(parse(GRAPHS[graph])))
    assert kept in {node.op_type for node in compiled.model.graph.node}
    read = qc.compile(compiled.model, "import-qdq", target="openvino", allow_unquantized=True)
    assert kept not in {op.op_type for op in read.ir.graph.ops()}
    again = qc.compile(compiled.model, "import-qdq,insert-qdq", target="openvino", allow_unquantized=True)
    assert [node.op_type for node in again.model.graph.node] == [
        node.op_type for node in compiled.model.graph.node
    ]


def test_a_mean_behind_a_maximum_has_the_name_and_the_shape_that_the_model_declares() -> None:
    """The maximum keeps the axis; its result had that name, so that onnx's checker refused the model."""
    model = _drawn(parse(GRAPHS["ReduceMax rounds its result (12 dB)"]))
    compiled, _ = _compiled(onnx.shape_inference.infer_shapes(model))
    onnx.checker.check_model(compiled.model, full_check=True)
    assert {node.op_type: list(node.output) for node in compiled.model.graph.node}["ReduceMean"] == ["r"]
    read = qc.compile(compiled.model, "import-qdq", target="openvino", allow_unquantized=True)
    assert {op.op_type: op.outputs[0].name for op in read.ir.graph.ops()}["ReduceMax"] == "r"


def _drawn(model: ModelProto) -> ModelProto:
    """With random weights whose channels differ much in size."""
    random = np.random.default_rng(3)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims and tensor.name != "var":
            shape = tuple(tensor.dims)
            numbers = random.normal(size=shape) * np.exp2(random.integers(-2, 3, shape[-1]))
            tensor.CopyFrom(onnx.numpy_helper.from_array(numbers.astype(np.float32), tensor.name))
    return model


def _compiled(model: ModelProto) -> tuple[Compiled, list[dict[str, np.ndarray]]]:
    random = np.random.default_rng(4)
    (info,) = model_inputs(model)
    shape = tuple(length if isinstance(length, int) else BATCH for length in info.shape or ())
    feeds = [{info.name: random.normal(size=shape).astype(np.float32)} for _ in range(4)]
    compiled = qc.compile(model, "w8a8", data=feeds, target="openvino", threads=1, allow_unquantized=True)
    return compiled, feeds


def _results(compiled: Compiled, feed: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Of OpenVINO, and of ONNX Runtime."""
    device = open_device("openvino", {"INFERENCE_PRECISION_HINT": "f32"})
    return device.open(compiled.model).run(feed)["y"], open_session(compiled.model).run(None, feed)[0]
