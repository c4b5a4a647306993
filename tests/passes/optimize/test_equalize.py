"""The pass equalize: ranges of channels are balanced, and the float model computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, run_model
from support.properties import check_outputs

from qc.ir.model import Model
from qc.ir.onnx.lower import lower


def equalized(source: onnx.ModelProto, changed: bool = True) -> Model:
    """The model after the pass; its outputs are as before."""
    model, _, report = apply("equalize", source)
    assert bool(report.actions) == changed
    check_outputs(source, lower(model), random_feeds(source, 1)[0], 1e-5)
    return model


def uneven(source: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with channels of very different ranges: a random factor for each row and column."""
    rng = np.random.default_rng(seed)
    for tensor in source.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.ndim > 1:
            rows, columns = (np.exp2(rng.uniform(-5, 5, length)) for length in array.shape[:2])
            factors = np.outer(rows, columns).reshape(*array.shape[:2], *[1] * (array.ndim - 2))
            tensor.CopyFrom(numpy_helper.from_array((array * factors).astype(np.float32), tensor.name))
    return source


def weight(model: Model, name: str) -> np.ndarray:
    return next(v.const.numpy() for v in model.graph.values() if v.name == name and v.const is not None)


def test_ranges_are_equal_where_a_channel_is_made_and_where_it_is_read() -> None:
    source = uneven(
        parse(
            """g (float[1, 3, 6, 6] x) => (float[1, 2, 6, 6] y)
            <float[8, 3, 1, 1] v, float[8] b, float[8, 1, 3, 3] d, float[2, 8, 1, 1] w> {
                c = Conv(x, v, b)
                r = Relu(c)
                e = Conv<pads = [1, 1, 1, 1], group = 8>(r, d)
                s = LeakyRelu(e)
                y = Conv(s, w)
            }"""
        )
    )
    model = equalized(source)
    rows, kernels = (np.abs(weight(model, name)).max(axis=(1, 2, 3)) for name in "vd")
    columns = np.abs(weight(model, "w")).max(axis=(0, 2, 3))
    np.testing.assert_allclose(rows, kernels, rtol=0.05)  # the three of a depthwise triple
    np.testing.assert_allclose(columns, kernels, rtol=0.05)
    assert [remark.subject for remark in model.journal.actions()] == ["Conv of 'c'", "Conv of 'e'"]
    (skipped,) = [str(remark) for remark in model.journal.remarks if not remark.number]
    assert skipped == "skip Conv of 'y': not equalized: 'y' is an output of the graph"


# What may stand between two layers: scales pass. {a} and the result {b} are (2, 4, H, W), x is (2, 4, 6, 6).
KEEPING = {
    "relu": "{b} = Relu({a})",
    "leaky relu": "{b} = LeakyRelu({a})",
    "prelu": "{b} = PRelu({a}, slope)",
    "clip": "{b} = Clip({a}, zero)",
    "average pool": "{b} = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>({a})",
    "residual": "{b}k = Conv(x, w3) {b}t = Conv({b}k, w4) {b} = Sum({a}, {b}k, {b}t)",
    "constant": "{b}m = Mul({a}, slope) {b} = Sub(slope, {b}m)",
    "gate": "{b}g = Conv(x, w3) {b}s = Sigmoid({b}g) {b} = Mul({b}s, {a})",
    "product": "{b}g = Conv(x, w3) {b} = Mul({b}g, {a})",
    "concat": "{b}k = Conv(x, w3) {b}c = Concat<axis = 1>({a}, x, {b}k) {b} = Conv({b}c, w5)",
    "split": "{b}c, {b}d = Split<axis = 1, num_outputs = 2>({a}) {b} = Concat<axis = 1>({b}d, {b}c)",
    "transposed": "{b} = ConvTranspose<group = 2>({a}, w6)",
    "channels last": """{b}t = Transpose<perm = [0, 2, 3, 1]>({a}) {b}m = MatMul({b}t, m1)
        {b} = Transpose<perm = [0, 3, 1, 2]>({b}m)""",
    "reshape": "{b}r = Reshape({a}, shape) {b} = Reshape({b}r, back)",
}
SHRINKING = {
    "max pool": "{b} = MaxPool<kernel_shape = [2, 2]>({a})",
    "pad": "{b} = Pad({a}, pads)",
    "resize": '{b} = Resize<mode = "linear">({a}, , twice)',
    "mean": "{b} = ReduceMean({a}, axes)",
    "slice": "{b} = Slice({a}, axes, ends, axes)",
}
PASSING = KEEPING | SHRINKING
CONSTANTS = """<float[4, 4, 3, 3] w1, float[4] bias, float[3, 4, 1, 1] w2, float[4, 4, 1, 1] w3,
    float[4, 4, 1, 1] w4, float[4, 12, 1, 1] w5, float[4, 2, 1, 1] w6, float[4, 4] m1, float[4, 1, 1] slope,
    float zero = {0}, int64[8] pads = {0, 0, 1, 0, 0, 0, 2, 1}, float[4] twice = {1, 1, 2, 2},
    int64[2] axes = {2, 3}, int64[2] ends = {5, 6},
    int64[3] shape = {2, 4, -1}, int64[4] back = {2, 4, 6, 6}>"""


def between(ops: str) -> onnx.ModelProto:
    return parse(
        f"""g (float[2, 4, 6, 6] x) => (float[2, 3, H, W] y) {CONSTANTS} {{
            a = Conv<auto_pad = "SAME_UPPER">(x, w1, bias)
            {ops.format(a="a", b="b")}
            y = Conv(b, w2)
        }}"""
    )


@pytest.mark.parametrize("ops", PASSING.values(), ids=PASSING.keys())
def test_scales_pass(ops: str) -> None:
    equalized(uneven(between(ops)))


@pytest.mark.parametrize(
    "ops",
    [
        "b = Sigmoid(a)",
        "six = Constant<value_float = 6.0>() b = Clip(a, zero, six)",
        "b = Mul(a, a)",
        "b = Add(a, x)",
        "n = Constant<value_float = 1.0>() b = Add(a, n)",
        "b = Conv(a, w1) c = Conv<pads = [1, 1, 1, 1]>(x, w1)",
        "n = Constant<value_ints = [0]>() e = Slice(n, n, n) m = ReduceMean(a, e) b = Mul(x, m)",
    ],
)
def test_scales_do_not_pass(ops: str) -> None:
    equalized(uneven(between(ops)), changed=False)


def test_what_others_see_is_left_alone() -> None:
    """A tensor that is an output, or is read where no scale passes, keeps its numbers; AIMET changes them."""
    for name, other in (("b", "b = Relu(a)"), ("t", "b = Relu(a) t = Tanh(b)")):
        model = between(other)
        model.graph.output.extend(parse(f"g () => (float[2, 4, 6, 6] {name}) {{ }}").graph.output)
        equalized(uneven(model), changed=False)


def test_what_a_body_reads_is_left_alone() -> None:
    """Chains inside of bodies are equalized, what comes in from outside is not."""
    numbers = ", ".join(str(2.0**-index) for index in range(16))
    source = parse(
        f"""g (float[2, 4, 6, 6] x, bool c) => (float[2, 4, 6, 6] y) {CONSTANTS} {{
            a = Conv<auto_pad = "SAME_UPPER">(x, w1, bias)
            y = If(c) <
                then_branch = t () => (float[2, 4, 6, 6] r) {{ r = Conv(a, w3) }},
                else_branch = e () => (float[2, 4, 6, 6] u)
                    <float[4, 4, 1, 1] v = {{{numbers}}}, float[4, 4, 1, 1] w = {{{numbers}}}> {{
                    d = Conv(x, v)
                    f = Relu(d)
                    u = Conv(f, w)
                }}
            >
        }}"""
    )
    model, _, _ = apply("equalize", source)
    assert [remark.subject for remark in model.journal.actions()] == ["Conv of 'd'"]
    for branch in (True, False):
        feed = random_feeds(source, 1)[0] | {"c": np.asarray(branch)}
        check_outputs(source, lower(model), feed, 1e-5)


def test_dense_layers_and_attention() -> None:
    """Through Flatten, Gemm with a bias of two axes, and the values of an attention."""
    equalized(
        uneven(
            parse(
                """g (float[N, 3, 4, 4] x) => (float[N, 2] y) <float[4, 3, 3, 3] v, float[5, 16] w,
                float[1, 5] b, float[5, 2] u> {
                    c = Conv(x, v)
                    r = Relu(c)
                    f = Flatten(r)
                    g = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(f, w, b)
                    h = Relu(g)
                    y = MatMul(h, u)
                }"""
            )
        )
    )
    model = equalized(
        uneven(
            parse(
                """g (float[1, S, 6] x) => (float[1, S, 6] y) <float[6, 6] q, float[6, 6] v, float[6] b,
                float[6, 6] o, int64[4] heads = {1, -1, 2, 3}, int64[3] flat = {1, -1, 6}> {
                    a = MatMul(x, q)
                    t = Transpose<perm = [0, 2, 1]>(a)
                    s = MatMul(a, t)
                    p = Softmax(s)
                    m = MatMul(x, v)
                    n = Add(b, m)
                    l = MatMul(p, n)
                    r = Reshape(l, heads)
                    z = Reshape(r, flat)
                    y = MatMul(z, o)
                }"""
            )
        )
    )
    assert [remark.subject for remark in model.journal.actions()] == ["MatMul of 'm'"]


def test_dead_channels_and_shared_biases() -> None:
    source = between("b = Relu(a) c = Conv<pads = [1, 1, 1, 1]>(x, w0, bias) d = Relu(c) e = Conv(d, w3)")
    dead = np.zeros((4, 4, 3, 3), np.float32)
    dead[0] = 1
    source.graph.initializer.append(numpy_helper.from_array(dead, "w0"))
    model = equalized(uneven(source))
    assert all(
        np.isfinite(v.const.numpy()).all() for v in model.graph.values() if v.const is not None and v.is_float
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(KEEPING)), max_size=5),
    st.sampled_from(sorted(PASSING)),
    st.integers(0, 99),
)
def test_random_chains_compute_the_same(kinds: list[str], last: str, seed: int) -> None:
    lines = [
        PASSING[kind].format(a=f"u{index}", b=f"v{index}") + f" u{index + 1} = Conv(v{index}, w{3 + index}x)"
        for index, kind in enumerate([*kinds, last])
    ]
    weights = "".join(f", float[4, 4, 1, 1] w{3 + index}x" for index in range(len(lines)))
    source = uneven(
        parse(
            f"""g (float[2, 4, 6, 6] x) => (float[2, 3, H, W] y) {CONSTANTS[:-1]}{weights}> {{
                u0 = Conv<auto_pad = "SAME_UPPER">(x, w1, bias)
                {" ".join(lines)}
                y = Conv(u{len(lines)}, w2)
            }}"""
        ),
        seed,
    )
    check_outputs(source, lower(apply("equalize", source)[0]), random_feeds(source, 1)[0], 1e-5)


def test_it_helps_where_weights_have_one_scale() -> None:
    source = uneven(between("b = Relu(a)"))
    feeds = random_feeds(source, 4)
    errors = []
    for passes in (QUANTIZE, QUANTIZE.replace("match-super", "equalize,match-super")):
        text = f"{passes.replace('annotate-per-channel,', '')},to-simulation"
        simulation = artifact(apply(text, source, "npu", feeds)[1], "simulation")
        errors.append(
            np.mean([(run_model(simulation, f)["y"] - run_model(source, f)["y"]) ** 2 for f in feeds])
        )
    assert errors[1] < errors[0] / 10
