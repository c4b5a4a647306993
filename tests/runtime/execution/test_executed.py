"""What ONNX Runtime makes of quantized ops, and why it keeps some in float."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse, random_feeds

from qc.ir.errors import ModelError
from qc.runtime.execution.executed import ExecutedOp, execution_of
from qc.runtime.execution.integer_kernels import misread, why_float
from qc.runtime.protos.wiring import all_nodes

GRIDS = """
<float s = {0.5}, float half = {0.25}, uint8 u = {0}, uint8 mid = {128}, int8 zero = {0}, uint16 wide = {0},
 float[2] several = {0.5, 0.25}, int8[2] zeros = {0, 0},
 float cs = {0.125}, float other = {0.25}, int32 izero = {0},
 int8[2, 2, 1, 1] k = {1, 2, 3, 4}, uint8[2, 2, 1, 1] uk = {1, 2, 3, 4}, int8[2, 2] m = {1, 2, 3, 4},
 int32[2] b = {1, 2}, float[2] fb = {0.5, 1.0}, float[4] twice = {1, 1, 2, 2},
 float none = {0}, float minus = {-1}, float six = {6}, float fine = {0.0235294}>
"""
READ = "q = QuantizeLinear(x, s, u)  d = DequantizeLinear(q, s, u)"
CONV = f"{READ}  w = DequantizeLinear(k, half, zero)  bias = DequantizeLinear(b, cs, izero)"
MATMUL = f"{READ}  w = DequantizeLinear(m, half, zero)  bias = DequantizeLinear(b, cs, izero)"
SIGNED = "q = QuantizeLinear(x, s, zero)  d = DequantizeLinear(q, s, zero)"
WRITE_SIGNED = "p = QuantizeLinear(r, s, zero)  y = DequantizeLinear(p, s, zero)"
CLIP = """a = Clip(r, {low}, {high})
p = QuantizeLinear(a, {scale}, {zero})  y = DequantizeLinear(p, {scale}, {zero})"""
OTHER = "p = QuantizeLinear(r, half, u)  y = DequantizeLinear(p, half, u)"
RELU = "a = Relu(r)  p = QuantizeLinear(a, s, {zero})  y = DequantizeLinear(p, s, {zero})"
WRITE = "p = QuantizeLinear(r, s, u)  y = DequantizeLinear(p, s, u)"


def executed(nodes: str, image: bool = True, opset: int = 21) -> ExecutedOp:
    """How ONNX Runtime runs the op that makes ``r`` in a model from ``x`` to ``y``."""
    shape = "1, 2, 4, 4" if image else "3, 2"
    header = f'<ir_version: 9, opset_import: ["" : {opset}]>\n'
    model = parse(f"{header} g (float[{shape}] x) => (float[{shape}] y) {GRIDS} {{ {nodes} }}")
    ops = execution_of(model).ops
    return next(op for op in ops if "r" in op.node.proto.output)


@pytest.mark.parametrize(
    ("nodes", "image", "kernel"),
    [
        (f"{CONV}  r = Conv(d, w, bias)  {WRITE}", True, "QLinearConv"),
        (
            f"{CONV}  r = Conv(d, w)  {RELU.format(zero='u')}",
            True,
            "QLinearConv",
        ),
        (
            f"{READ}  w = DequantizeLinear<axis=0>(k, several, zeros)  r = Conv(d, w)  {WRITE}",
            True,
            "QLinearConv",
        ),
        (f"{READ}  r = Add(d, d)  {WRITE}", True, "QLinearAdd"),
        (f"{READ}  r = Sigmoid(d)  {WRITE}", True, "QLinearSigmoid"),
        (f"{READ}  r = Transpose<perm=[0, 1, 3, 2]>(d)  {WRITE}", True, "Transpose"),
        (f"{MATMUL}  r = MatMul(d, w)  {WRITE}", False, "QLinearMatMul"),
        (f"{MATMUL}  r = MatMul(d, w)  y = Tanh(r)", False, "MatMulIntegerToFloat"),
        (
            f"{READ}  w = DequantizeLinear<axis=1>(m, several, zeros)  r = MatMul(d, w)  {WRITE}",
            False,
            "QLinearMatMul",
        ),
        (f"{MATMUL}  r = Gemm(d, w, bias)  y = Tanh(r)", False, "QGemm"),
        (
            f"{CONV}  r = Conv(d, w)  {CLIP.format(low='none', high='six', scale='fine', zero='u')}",
            True,
            "QLinearConv",
        ),
        (f'{READ}  r = Resize<mode = "nearest">(d, , twice)  {WRITE}', True, "Resize"),
        (f"{READ}  r = ReduceMax(d)  {WRITE}", True, "ReduceMax"),
        (f"{READ}  r = MaxPool<kernel_shape = [1, 1]>(d)  {WRITE}", True, "MaxPool"),
    ],
)
def test_integer_kernels(nodes: str, image: bool, kernel: str) -> None:
    op = executed(nodes, image)
    assert (op.kernel, op.integer) == (kernel, True)


@pytest.mark.parametrize(
    ("nodes", "image", "rule", "said"),
    [
        (f"{READ}  r = Tanh(d)  {WRITE}", True, "unsupported op", "no integer kernel for Tanh"),
        (f"{CONV}  r = Conv(x, w)  {WRITE}", True, "float input", "reads the tensor 'x' in float"),
        (f"{CONV}  r = Conv(d, w)  y = Tanh(r)", True, "no output quantizer", "'r' is read in float by Tanh"),
        (
            f"{CONV}  r = Conv(d, w)  a = Tanh(r)  y = Add(r, a)",
            True,
            "no output quantizer",
            "read in float by",
        ),
        (f"{READ}  r = Add(d, x)  {WRITE}", True, "float input", "reads the tensor 'x' in float"),
        (f"{READ}  r = Add(d, d)  y = Tanh(r)", True, "no output quantizer", "read in float by Tanh"),
        (
            "q = QuantizeLinear(x, s, wide)  d = DequantizeLinear(q, s, wide)"
            "  w = DequantizeLinear(k, half, zero)  r = Conv(d, w)"
            "  p = QuantizeLinear(r, s, wide)  y = DequantizeLinear(p, s, wide)",
            True,
            "type combination",
            "codes of type uint16",
        ),
        (
            f"{CONV}  r = Conv(d, w)  {RELU.format(zero='mid')}",
            True,
            "activation in between",
            "whose zero point is 128, not 0",
        ),
        (f"{MATMUL}  r = Gemm(d, w, fb)  y = Tanh(r)", False, "float bias", "'fb' is not quantized to int32"),
        (
            f"{MATMUL}  r = MatMul(d, w)  a = Add(r, fb)  y = Tanh(a)",
            False,
            "float bias",
            "adds a float bias",
        ),
        (
            f"{CONV}  ob = DequantizeLinear(b, other, izero)  r = Conv(d, w, ob)  {WRITE}",
            True,
            "bias scale",
            "the scale of its bias 'ob' is not input times weight",
        ),
        (
            f"{READ}  r = Add(d, d)  p = QuantizeLinear(r, s, wide)  y = DequantizeLinear(p, s, wide)",
            True,
            "type combination",
            "its result has codes of type uint16",
        ),
        (
            f"{CONV}  r = Conv(d, w)  {RELU.format(zero='wide')}",
            True,
            "type combination",
            "its result has codes of type uint16",
        ),
        (
            f"{READ}  r = Add(d, d)  {RELU.format(zero='mid')}",
            True,
            "activation in between",
            "whose zero point is 128, not 0",
        ),
        (
            f"{MATMUL}  r = Gemm(d, w, bias)  {RELU.format(zero='mid')}",
            False,
            "activation in between",
            "whose zero point is 128, not 0",
        ),
        (
            f"{CONV}  r = Conv(d, w)  {CLIP.format(low='none', high='six', scale='s', zero='u')}",
            True,
            "activation in between",
            "reaches to 127.5, beyond its limit 6",
        ),
        (
            f"{CONV}  r = Conv(d, w)  {CLIP.format(low='minus', high='six', scale='fine', zero='mid')}",
            True,
            "activation in between",
            "whose zero point is 128, not 0",
        ),
        (
            f"top = ReduceMax<keepdims = 0>(x)  {CONV}  r = Conv(d, w)"
            f"  {CLIP.format(low='none', high='top', scale='fine', zero='u')}",
            True,
            "activation in between",
            "its limits are no constants",
        ),
        (
            f"{CONV}  r = Conv(d, w)  p = QuantizeLinear(r, s, u)  y = DequantizeLinear(p, s, u)"
            "  p2 = QuantizeLinear(r, half, u)  y2 = DequantizeLinear(p2, half, u)  z = Tanh(y2)",
            True,
            "no output quantizer",
            "'r' is quantized to 2 grids",
        ),
        (f"{READ}  r = Transpose(d)  {OTHER}", True, "other grid", "another grid than its input"),
        (
            f'{READ}  r = Resize<mode = "linear">(d, , twice)  {WRITE}',
            True,
            "attribute",
            "its mode is 'linear', not 'nearest'",
        ),
        (f"{READ}  r = SpaceToDepth<blocksize = 2>(d)  {WRITE}", True, "unsupported op", "for SpaceToDepth"),
        (f"{SIGNED}  r = Add(d, d)  {WRITE_SIGNED}", True, "type combination", "codes of type int8"),
        (f"{SIGNED}  r = MatMul(d, d)  {WRITE_SIGNED}", True, "type combination", "codes of type int8"),
    ],
)
def test_reasons_to_stay_in_float(nodes: str, image: bool, rule: str, said: str) -> None:
    op = executed(nodes, image)
    reason = why_float(op.node)
    assert (op.integer, reason.rule) == (False, rule)
    assert said in reason.text


def test_a_pool_of_an_old_opset_has_no_integer_kernel() -> None:
    op = executed(f"{READ}  r = MaxPool<kernel_shape = [1, 1]>(d)  {WRITE}", opset=11)
    assert (op.integer, why_float(op.node).rule) == (False, "opset")
    assert "begins with opset 12; the model has 11" in why_float(op.node).text


@pytest.mark.parametrize(
    ("nodes", "image", "said"),
    [
        (
            "w = DequantizeLinear<axis=0>(m, several, zeros)  r = MatMul(d, w)",
            False,
            "axis 0, and are taken f",
        ),
        ("w = DequantizeLinear<axis=1>(k, several, zeros)  r = Conv(d, w)", True, "axis 1, and are taken f"),
    ],
)
def test_scales_along_another_axis_give_wrong_numbers(nodes: str, image: bool, said: str) -> None:
    op = executed(f"{READ}  {nodes}  {WRITE}", image)
    wrong = misread(op.node)
    assert wrong is not None and said in wrong.text
    assert op.integer or not image  # since ONNX Runtime 1.32 such a MatMul stays float, as it should
    assert misread(executed(f"{MATMUL}  r = MatMul(d, w)  {WRITE}", False).node) is None


def test_times_are_those_of_the_nodes() -> None:
    model = parse(
        f"g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) {GRIDS} {{ {CONV}  r = Conv(d, w)  {WRITE} }}"
    )
    execution = execution_of(model, random_feeds(model, 4))
    conv = next(op for op in execution.ops if op.node.op_type == "Conv")
    assert [time.seconds for time in execution.times if time.name == conv.runs_as] == [conv.seconds]
    assert all(time.seconds >= 0 for time in execution.times)
    assert model == parse(
        f"g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) {GRIDS} {{ {CONV}  r = Conv(d, w)  {WRITE} }}"
    )


def test_bodies_are_looked_into() -> None:
    model = parse(
        f"""g (float[1, 2, 4, 4] x, bool c) => (float[1, 2, 4, 4] y) {GRIDS} {{
            y = If(c) <
                then_branch = t () => (float[1, 2, 4, 4] z) {{
                    q = QuantizeLinear(x, s, u)  d = DequantizeLinear(q, s, u)
                    w = DequantizeLinear(k, half, zero)  r = Conv(d, w)
                    p = QuantizeLinear(r, s, u)  z = DequantizeLinear(p, s, u) }},
                else_branch = e () => (float[1, 2, 4, 4] z2) {{ z2 = Tanh(x) }}
            >
        }}"""
    )
    kernels = {op.node.op_type: op.kernel for op in execution_of(model).ops}
    assert kernels == {"If": "If", "Conv": "QLinearConv", "Tanh": "Tanh"}


def test_a_dilated_pool_between_quantize_ops_is_named() -> None:
    said = "makes a QLinearAveragePool of AveragePool of 'r', which has no attribute 'dilations'"
    with pytest.raises(ModelError, match=said):
        executed(f"{READ}  r = AveragePool<kernel_shape=[1, 1], dilations=[1, 1]>(d)  {WRITE}")


def test_wiring_finds_constants_of_nodes_and_of_graphs_around() -> None:
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) <float s = {0.5}> {
            y = If(c) <
                then_branch = t () => (float[2] z) { k = Constant<value = float {2.0}>() z = Mul(x, k) },
                else_branch = e () => (float[2] z2) { z2 = Mul(x, s) }
            >
        }"""
    )
    constants = [node.constant(1) for node in all_nodes(model.graph) if node.op_type == "Mul"]
    assert [
        float(np.frombuffer(t.raw_data, "f4")[0] if t.raw_data else t.float_data[0]) for t in constants
    ] == [
        2.0,
        0.5,
    ]
