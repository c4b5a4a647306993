"""Batch normalizations are folded into the ops beside them, and stay where that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import apply, run_model
from support.simplified import kinds, simplified

from qc.ir.errors import ModelError
from qc.ir.onnx.lower import lower

NORM = "float[2] gamma, float[2] beta, float[2] mean, float[2] var"


def norm_after(line: str, weights: str) -> ModelProto:
    shape = "A, B" if "v, " in line else "A, B, C, D"
    text = f"""g (float[1, 2, 3, 3] x, float[4, 2] v) => (float[{shape}] y) <{weights}, {NORM}> {{
        {line}
        y = BatchNormalization(a, gamma, beta, mean, var)
    }}"""
    return parse(text)


@pytest.mark.parametrize(
    ("line", "weights"),
    [
        ("a = Conv(x, w)", "float[2, 2, 1, 1] w"),
        ("a = Conv(x, w, b)", "float[2, 2, 3, 3] w, float[2] b"),
        ("a = Conv<group = 2>(x, w)", "float[2, 1, 2, 2] w"),
        ("a = ConvTranspose(x, w, b)", "float[2, 2, 2, 2] w, float[2] b"),
        ("a = ConvTranspose<group = 2>(x, w)", "float[2, 1, 2, 2] w"),
        ("a = Gemm(v, w)", "float[2, 2] w"),
        ("a = MatMul(v, w)", "float[2, 2] w"),
        ("a = Gemm<transB = 1, alpha = 0.5, beta = 3.0>(v, w, b)", "float[2, 2] w, float[1] b"),
        ("a = Gemm<beta = 0.0>(v, w, b)", "float[2, 2] w, float[4, 2] b"),
    ],
)
def test_a_batch_norm_is_folded(line: str, weights: str) -> None:
    assert len(simplified("fold-batch-norms", norm_after(line, weights)).graph.node) == 1


@pytest.mark.parametrize(
    ("line", "weights"),
    [
        ("a = Relu(x)", "float[1] unused"),
        ("k = Neg(w) a = MatMul(v, k)", "float[2, 2] w"),
        ("k = Neg(w) a = Conv(x, k)", "float[2, 2, 1, 1] w"),
        ("k = Neg(b) a = Conv(x, w, k)", "float[2, 2, 1, 1] w, float[2] b"),
    ],
)
def test_a_batch_norm_stays(line: str, weights: str) -> None:
    simplified("fold-batch-norms", norm_after(line, weights), changed=False)


@pytest.mark.parametrize(
    ("constant", "folded"),
    [
        ("float[2, 1, 1] k", True),
        ("float[1, 2, 1, 1] k", True),
        ("float k", True),
        ("float[1] k", True),
        ("float[3] k", False),
        ("float[3, 1] k", False),
        ("float[4, 2, 1, 1] k", False),
        ("float[1, 1, 2, 1, 1] k", False),
    ],
)
@pytest.mark.parametrize("operation", ["Mul(k, a)", "Add(k, a)", "Sub(k, a)", "Sub(a, k)", "Div(a, k)"])
def test_constants_that_are_folded(operation: str, constant: str, folded: bool) -> None:
    shape = "A, B, C, D, E" if "1, 1, 2" in constant else "A, B, C, D"
    text = f"""g (float[1, 2, 3, 3] x) => (float[{shape}] y) <float[2, 2, 1, 1] w, {constant}> {{
        a = Conv(x, w)
        y = {operation}
    }}"""
    simplified("fold-batch-norms", parse(text), changed=folded)


@pytest.mark.parametrize("operation", ["Div(k, a)", "Div(a, zeros)", "Div(a, tiny)", "Pow(a, k)"])
def test_what_is_no_scale_and_shift_stays(operation: str) -> None:
    text = f"""g (float[1, 2, 3, 3] x) => (float[A, B, C, D] y)
    <float[2, 2, 1, 1] w, float[1] k, float[2, 1, 1] zeros = {{0, 1}}, float[2, 1, 1] tiny = {{1e-39, 1}}> {{
        a = Conv(x, w)
        y = {operation}
    }}"""
    simplified("fold-batch-norms", parse(text), changed=False)


@pytest.mark.parametrize(
    ("moved", "constant", "folded"),
    [
        ("t = Transpose<perm = [0, 2, 3, 1]>(a)", "float[2] k", True),
        ("t = Transpose(a)", "float[2, 1] k", True),
        ("t = Transpose<perm = [0, 2, 3, 1]>(a)", "float[2, 1, 1] k", False),
        ("t = Squeeze(a, two)", "float[2, 1] k", True),
        ("t = Squeeze(a, minus_two)", "float[1, 2, 1] k", True),
        ("t = Squeeze(a, two)", "float[2] k", False),
        ("t = Squeeze(a)", "float[2, 1] k", False),
        ("t = Unsqueeze(a, two)", "float[2, 1, 1, 1] k", True),
        ("s = Squeeze(a, two) t = Transpose<perm = [0, 2, 1]>(s)", "float[2] k", True),
        ("t = Reshape(a, two_two)", "float[2] k", False),
    ],
)
@pytest.mark.parametrize("op_type", ["Mul", "Add"])
def test_constants_behind_what_moves_channels(op_type: str, moved: str, constant: str, folded: bool) -> None:
    text = f"""g (float[1, 2, 1, 2] x) => (float y)
    <float[2, 2, 1, 1] w, float[2] b, {constant}, int64[1] two = {{2}}, int64[1] minus_two = {{-2}},
     int64[2] two_two = {{2, 2}}> {{
        a = Conv(x, w, b)
        {moved}
        n = {op_type}(t, k)
        y = ReduceSum<keepdims = 0>(n)
    }}"""
    simplified("fold-batch-norms", parse(text), changed=folded)


def test_a_shared_weight_is_folded_for_one_reader_only() -> None:
    text = f"""g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y, float[1, 2, 3, 3] z)
    <float[2, 2, 1, 1] w, float[2] b, {NORM}> {{
        a = Conv(x, w, b)
        y = BatchNormalization(a, gamma, beta, mean, var)
        z = Conv(x, w, b)
    }}"""
    assert kinds(simplified("fold-batch-norms", parse(text))) == ["Conv", "Conv"]


@pytest.mark.parametrize("shown", ["float[1, 2, 3, 3] a", "float[1, 2, 3, 3] r"])
def test_a_result_that_others_see_is_not_changed(shown: str) -> None:
    text = f"""g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y, {shown}) <float[2, 2, 1, 1] w, {NORM}> {{
        a = Conv(x, w)
        r = Relu(a)
        y = BatchNormalization(a, gamma, beta, mean, var)
    }}"""
    simplified("fold-batch-norms", parse(text), changed=False)


def test_a_batch_norm_inside_a_branch() -> None:
    text = f"""g (float[1, 2, 3, 3] x, bool c) => (float[1, 2, 3, 3] y) <float[2, 2, 1, 1] w, {NORM}> {{
        y = If(c) <
            then_branch = t () => (float[1, 2, 3, 3] r) {{
                a = Conv(x, w)
                r = BatchNormalization(a, gamma, beta, mean, var)
            }},
            else_branch = e () => (float[1, 2, 3, 3] u) {{ u = Conv(x, w) }}
        >
    }}"""
    simplified("fold-batch-norms", parse(text))


def test_a_batch_norm_with_statistics_per_place() -> None:
    node = helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["y"], spatial=0)
    conv = helper.make_node("Conv", ["x", "w"], ["a"])
    weights = [numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")]
    weights += [numpy_helper.from_array(np.ones((2, 3, 3), np.float32), name) for name in "sbmv"]
    model = model_of([conv, node], [floats("x", 1, 2, 3, 3)], [floats("y", 1, 2, 3, 3)], weights, opset=8)
    assert kinds(lower(apply("fold-batch-norms", model)[0])) == ["Conv", "BatchNormalization"]


def test_half_precision_stays() -> None:
    text = norm_after("a = Conv(x, w)", "float[2, 2, 1, 1] w")
    for info in (*text.graph.input, *text.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in text.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    folded = lower(apply("fold-batch-norms", text)[0])
    assert {tensor.data_type for tensor in folded.graph.initializer} == {TensorProto.FLOAT16}
    feed = random_feeds(text)[0]
    np.testing.assert_allclose(run_model(folded, feed)["y"], run_model(text, feed)["y"], rtol=0.01, atol=0.01)


@pytest.mark.parametrize(
    ("image", "reader", "weights", "folded"),
    [
        (True, "Conv(n, w)", "float[3, 2, 3, 3] w", True),
        (True, "Conv(n, w, b)", "float[3, 2, 1, 1] w, float[3] b", True),
        (True, 'Conv<auto_pad="VALID">(n, w)', "float[3, 2, 2, 2] w", True),
        (True, "Conv<pads=[1, 1, 1, 1]>(n, w)", "float[3, 2, 3, 3] w", False),
        (True, 'Conv<auto_pad="SAME_UPPER">(n, w)', "float[3, 2, 3, 3] w", False),
        (True, "Conv<group=2>(n, w)", "float[4, 1, 3, 3] w", False),
        (True, "ConvTranspose(n, w)", "float[2, 3, 3, 3] w", False),
        (False, "Gemm(n, w)", "float[2, 3] w", True),
        (False, "Gemm<alpha=0.5, beta=2.0, transB=1>(n, w, b)", "float[3, 2] w, float[3] b", True),
        (False, "Gemm(n, w, b)", "float[2, 3] w, float b", True),
        (False, "Gemm<transA=1>(n, w)", "float[4, 3] w", False),
        (False, "Gemm(k, n)", "float[3, 4] k", False),
    ],
)
def test_a_batch_norm_is_folded_into_the_op_behind(
    image: bool, reader: str, weights: str, folded: bool
) -> None:
    shape = "1, 2, 4, 4" if image else "4, 2"
    result = "A, B, C, D" if image else "A, B"
    text = f"""g (float[{shape}] x) => (float[{result}] y) <{weights}, {NORM}> {{
        r = Relu(x)
        n = BatchNormalization(r, gamma, beta, mean, var)
        y = {reader}
    }}"""
    assert (
        "BatchNormalization" in kinds(simplified("fold-batch-norms", parse(text), changed=folded))
    ) != folded


@pytest.mark.parametrize("other", ["z = Exp(n)", "z = Neg(y)"])
def test_a_batch_norm_that_others_read_stays(other: str) -> None:
    shown = "float[1, 2, 4, 4] n, " if other == "z = Neg(y)" else ""
    text = f"""g (float[1, 2, 4, 4] x) => ({shown}float[1, 2, 4, 4] y, float[1, 2, 4, 4] z)
    <float[2, 2, 1, 1] w, {NORM}> {{
        n = BatchNormalization(x, gamma, beta, mean, var)
        y = Conv(n, w)
        {other}
    }}"""
    simplified("fold-batch-norms", parse(text), changed=False)


@pytest.mark.parametrize(
    ("parameter", "bad", "cause"),
    [
        ("var", "-1.0", "its variance 'var' holds -1, and with epsilon there is no root to divide by"),
        ("var", "nan", "its variance 'var' holds NaN or infinity"),
        ("beta", "inf", "its bias 'beta' holds NaN or infinity"),
    ],
)
@pytest.mark.parametrize("line", ["a = Conv(x, w)", "a = Relu(x)"])
def test_a_batch_norm_without_a_finite_scale_and_shift(
    line: str, parameter: str, bad: str, cause: str
) -> None:
    model = norm_after(line, "float[2, 2, 1, 1] w")
    (tensor,) = [tensor for tensor in model.graph.initializer if tensor.name == parameter]
    tensor.CopyFrom(numpy_helper.from_array(np.array([float(bad), 1], np.float32), parameter))
    with pytest.raises(ModelError, match=f"BatchNormalization of 'y' .*: {cause}; mend the model"):
        apply("fold-batch-norms", model)
