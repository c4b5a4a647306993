"""Ops that the target runs as one op, or as others that are quicker."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from support.models import parse, random_feeds
from support.pipelines import apply, run_model

import qc


@pytest.mark.parametrize(("kind", "fused"), [("float", True), ("float16", False), ("double", False)])
def test_supergroups_of_other_floats_stay(kind: str, fused: bool) -> None:
    text = f"""g ({kind}[2, 4] x) => ({kind}[2, 4] y) {{
        root = Cast<to = {TensorProto.DataType.Value(kind.upper())}>(r)
        one = Cast<to = {TensorProto.DataType.Value(kind.upper())}>(o)
        half = Cast<to = {TensorProto.DataType.Value(kind.upper())}>(h)
        inner = Div(x, root)
        erf = Erf(inner)
        gate = Add(erf, one)
        product = Mul(x, gate)
        y = Mul(product, half)
    }}""".replace(" y) {", " y) <float r = {1.4142135}, float o = {1.0}, float h = {0.5}> {")
    made = qc.compile(parse(text), "fold-constants,fuse-supergroups", target="qnn-htp").model
    assert ([node.op_type for node in made.graph.node] == ["Gelu"]) == fused


def test_a_scale_of_more_axes_than_the_data_is_not_fused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 4] x) => (float[1, 3, 4] y)
    <float[1, 1, 4] scale, float[1, 1, 4] bias, float two = {2}, float e = {1e-5}> {
        mean = ReduceMean<axes = [-1]>(x)
        centered = Sub(x, mean)
        squares = Pow(centered, two)
        variance = ReduceMean<axes = [-1]>(squares)
        guarded = Add(variance, e)
        deviation = Sqrt(guarded)
        normal = Div(centered, deviation)
        scaled = Mul(normal, scale)
        y = Add(scaled, bias)
    }"""
    made = qc.compile(parse(text), "fuse-supergroups", target="qnn-htp").model
    assert "LayerNormalization" not in [node.op_type for node in made.graph.node]


HARD_SWISHES = {
    "Clip, Mul and Div": "a = Add(c, three) l = Clip(a, low, six) m = Mul(c, l) y = Div(m, six)",
    "Clip of a line": "s = Div(c, six) a = Add(s, half) l = Clip(a, low, one) y = Mul(c, l)",
    "one op": "y = HardSwish(c)",
}


def behind_a_convolution(spelling: str, opset: int) -> ModelProto:
    return parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) <
        float[4, 3, 1, 1] w, float low = {{0}}, float half = {{0.5}}, float one = {{1}}, float three = {{3}},
        float six = {{6}}
    > {{ c = Conv(x, w) {spelling} }}""")


@pytest.mark.parametrize(
    ("spelling", "fused"),
    [
        *((spelling, "HardSwish") for spelling in HARD_SWISHES.values()),
        ("a = Add(c, three) l = Clip(a, low, six) y = Div(l, six)", "HardSigmoid"),
        ("a = Add(c, three) l = Clip(a, low, one) y = Div(l, six)", ""),
    ],
)
def test_the_htp_has_hard_functions_as_single_ops(spelling: str, fused: str) -> None:
    model = behind_a_convolution(spelling, 14)
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="qnn-htp").model
    assert not fused or [node.op_type for node in made.graph.node] == ["Conv", fused]
    assert fused or "Clip" in [node.op_type for node in made.graph.node]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spelling", HARD_SWISHES)
def test_a_hard_swish_is_a_product_with_a_hard_sigmoid_on_onnx_runtime(spelling: str) -> None:
    model = behind_a_convolution(HARD_SWISHES[spelling], 14 if spelling == "one op" else 11)
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="ort-cpu").model
    assert [node.op_type for node in made.graph.node] == ["Conv", "HardSigmoid", "Mul"]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-5, atol=1e-6)
    again = qc.compile(made, "fuse-supergroups", target="ort-cpu").model
    assert again.graph.node == made.graph.node


# The lengths behind samples and channels, and the ops.
INSTANCE_NORMS = {
    "one op, scaled behind": (
        "9",
        "n = InstanceNormalization<epsilon = 0.01>(x, s, b) m = Mul(n, factor) y = Add(m, shift)",
    ),
    "one op, moved behind": ("9", "n = InstanceNormalization(x, s, b) y = Add(n, shift)"),
    "written out": (
        "5, 4",
        """m = ReduceMean<axes = [2, 3]>(x) c = Sub(x, m) q = Mul(c, c) v = ReduceMean<axes = [2, 3]>(q)
        g = Add(v, e) d = Sqrt(g) n = Div(c, d) t = Mul(n, factor) y = Add(t, shift)""",
    ),
}


@pytest.mark.parametrize("spelling", INSTANCE_NORMS)
def test_the_htp_has_instance_norms_as_single_ops(spelling: str) -> None:
    """Those of wav2vec 2 and HuBERT stayed float in three ops, and the HTP gave up the whole model."""
    lengths, body = INSTANCE_NORMS[spelling]
    parameters = f"[3{', 1' * len(lengths.split(','))}]"
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3, {lengths}] x) => (float[2, 3, {lengths}] y) <
        float[3] s, float[3] b, float{parameters} factor, float{parameters} shift, float e = {{0.01}}
    > {{ {body} }}""")
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="qnn-htp").model
    assert [node.op_type for node in made.graph.node] == ["InstanceNormalization"]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-4, atol=1e-5)


def gelu_by(function: str, opset: int) -> str:
    inner = {
        "Erf": "i = Div(c, root) e = Erf(i)",
        "Tanh": """s = Mul(c, c) t = Mul(s, c) u = Mul(t, cubic) v = Add(c, u) i = Mul(v, slope)
            e = Tanh(i)""",
    }[function]
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y) <
        float[16, 16, 1, 1] w, float root = {{1.4142135}}, float one = {{1}}, float half = {{0.5}},
        float cubic = {{0.044715}}, float slope = {{0.7978845}}
    > {{ c = Conv(x, w) {inner} g = Add(e, one) p = Mul(c, g) y = Mul(p, half) }}"""


@pytest.mark.parametrize("target", ["npu", "ort-cpu", "rknn", "qnn-htp"])
def test_a_maximum_of_codes_of_an_old_opset_is_opened_by_onnx_runtime(target: str) -> None:
    """Before opset 12 it takes no 8-bit integers, which ONNX Runtime gives it behind a DequantizeLinear."""
    model = parse("""<ir_version: 6, opset_import: ["" : 11]>
    g (float[1, 4, 8, 8] x) => (float[1, 4, 1, 1] y) <float[4, 4, 1, 1] w> {
        c = Conv(x, w)
        y = ReduceMax<axes = [2, 3]>(c)
    }""")
    feeds = random_feeds(model, 2)
    run_model(qc.compile(model, "w8a8", data=feeds, target=target).model, feeds[0], optimize=True)


@pytest.mark.parametrize("function", ["Erf", "Tanh"])
def test_a_model_with_a_gelu_gets_the_opset_that_has_it(function: str) -> None:
    """Where ONNX Runtime dequantizes for each reader, it does not find a GELU of several ops."""
    model = parse(gelu_by(function, 11))
    feeds = random_feeds(model, 4)
    compiled = qc.compile(model, "w8a8", data=feeds, target="ort-cpu")
    (opset,) = compiled.model.opset_import
    op_types = {node.op_type for node in compiled.model.graph.node}
    assert opset.version == 20 and "Gelu" in op_types and function not in op_types
    assert any("opset 11 to 20, which has the ops that ort-cpu runs" in note for note in compiled.notes)
    expected = run_model(model, feeds[0])["y"]
    assert np.abs(run_model(compiled.model, feeds[0])["y"] - expected).max() < 0.05 * np.abs(expected).max()


def test_transposes_between_them_hide_no_ops_that_belong_together() -> None:
    """tf2onnx leaves them around ops that it cannot move them past."""
    plain = gelu_by("Tanh", 13)
    turned = plain.replace(
        "u = Mul(t, cubic)",
        "a = Transpose<perm = [0, 2, 3, 1]>(t) k = Mul(a, cubic) u = Transpose<perm = [0, 3, 1, 2]>(k)",
    )
    feeds = random_feeds(parse(plain), 4)
    made, expected = (
        qc.compile(parse(text), "w8a8", data=feeds, target="ort-cpu").model for text in (turned, plain)
    )
    assert [node.op_type for node in made.graph.node] == [node.op_type for node in expected.graph.node]
    assert "Transpose" in turned and "Gelu" in {node.op_type for node in made.graph.node}


def test_a_model_without_one_keeps_its_opset() -> None:
    model = parse(gelu_by("Erf", 13).replace("e = Erf(i)", "e = Tanh(i)"))
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2))
    assert [opset.version for opset in compiled.model.opset_import] == [13]


@pytest.mark.parametrize("shape", ["2, 3, 4, 5", "2, 3, 4, 1, 2"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [13, 18])
def test_means_over_positions_are_poolings_where_these_run_in_integers(
    shape: str, keepdims: int, opset: int
) -> None:
    axes = list(range(2, shape.count(",") + 1))
    held = "" if opset == 18 else f"axes = {axes}, "
    ports = "(x, axes)" if opset == 18 else "(x)"
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[{shape}] x) => (float y) <int64[{len(axes)}] axes = {{{str(axes)[1:-1]}}}> {{
        y = ReduceMean<{held}keepdims = {keepdims}>{ports}
    }}"""
    model = parse(text)
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="ort-cpu").model
    assert [node.op_type for node in made.graph.node] == ["GlobalAveragePool", "Flatten"][: 2 - keepdims]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "target", "axes"),
    [
        ("float[2, 3, 4, 5]", "ort-cpu", "1, 2"),
        ("float[2, 3, 4]", "ort-cpu", "2"),
        ("double[2, 3, 4, 5]", "ort-cpu", "2, 3"),
        ("float[2, 3, 4, 5]", "npu", "2, 3"),
    ],
)
def test_other_means_stay(data: str, target: str, axes: str) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 13]> g ({data} x) => ({data.partition("[")[0]} y)'
    model = parse(f"{text} {{ y = ReduceMean<axes = [{axes}]>(x) }}")
    made = qc.compile(model, "fuse-supergroups", target=target).model
    assert [node.op_type for node in made.graph.node] == ["ReduceMean"]


def test_means_of_a_norm_stay_its_own() -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1, 3, 4, 5] x) => (float[1, 3, 4, 5] y) <float two = {2}, float e = {1e-5}> {
        mean = ReduceMean<axes = [2, 3]>(x)
        centered = Sub(x, mean)
        squares = Pow(centered, two)
        variance = ReduceMean<axes = [2, 3]>(squares)
        guarded = Add(variance, e)
        deviation = Sqrt(guarded)
        y = Div(centered, deviation)
    }"""
    model, _, _ = apply("fuse-supergroups, match-supergroups", parse(text))
    assert [region.name for region in model.regions] == ["instance_norm"]


def test_a_norm_whose_shapes_are_computed_from_free_lengths_does_no_harm() -> None:
    """As TensorFlow's exporters write one for a batch of any size: it was tried without its shapes."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 8] x) => (float[N, 8] y) <
        float[8] scale, float[8] bias, int64[1] last = {-1}, int64[1] one = {1}, float tiny = {0.001},
        float share = {0.125}
    > {
        rows = Shape<end = 1>(x)
        column = Concat<axis = 0>(rows, one)
        sum = ReduceSum<keepdims = 0>(x, last)
        mean = Mul(sum, share)
        squares = Mul(x, x)
        total = ReduceSum<keepdims = 0>(squares, last)
        second = Mul(total, share)
        square = Mul(mean, mean)
        variance = Sub(second, square)
        v = Reshape(variance, column)
        m = Reshape(mean, column)
        e = Add(v, tiny)
        root = Sqrt(e)
        inverse = Reciprocal(root)
        gain = Mul(inverse, scale)
        centred = Sub(x, m)
        n = Mul(centred, gain)
        y = Add(n, bias)
    }""")
    free = qc.compile(model, "fold-constants,fuse-supergroups", target="qnn-htp").model
    fixed = qc.compile(model, "fold-constants,fuse-supergroups", target="qnn-htp", fix_shapes=["N=2"]).model
    assert [node.op_type for node in fixed.graph.node] == ["LayerNormalization"]
    (feed,) = random_feeds(model, 1)
    np.testing.assert_allclose(run_model(free, feed)["y"], run_model(model, feed)["y"], atol=1e-5)


@pytest.mark.parametrize(
    ("result", "ops"),
    [
        ("1, 2, 4", "a = Add(x, three) l = Clip(a, low, six) m = Mul(x, l) y = Div(m, long)"),
        ("1, 2, 4, 3, 3", "n = InstanceNormalization(p, scale, bias) y = Mul(n, longer)"),
    ],
)
def test_what_gives_the_result_more_axes_is_not_fused(result: str, ops: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 4] x, float[2, 4, 3, 3] p) => (float[{result}] y) <
        float three = {{3}}, float low = {{0}}, float six = {{6}}, float[1, 1, 1] long = {{6}},
        float[4] scale, float[4] bias, float[1, 1, 4, 1, 1] longer
    > {{ {ops} }}""")
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="qnn-htp").model
    (feed,) = random_feeds(model, 1)
    assert run_model(made, feed)["y"].shape == run_model(model, feed)["y"].shape


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("root", ["Sqrt({})", "Pow({}, half)"])
def test_norms_by_other_deviations_are_fused(unbiased: bool, outside: bool, axis: int, root: str) -> None:
    """By ``n - 1``, and with an epsilon beside the deviation, which small numbers show."""
    if outside:
        guard = f"root = {root.format('v')} deviation = Add(root, e)"
    else:
        guard = f"guarded = Add(v, e) deviation = {root.format('guarded')}"
    less = 5 if unbiased else 6
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1, 6, 6] x) => (float[1, 6, 6] y)
    <int64[1] axes = {{{axis}}}, float n = {{6}}, float less = {{{less}}}, float e = {{1e-5}},
    float half = {{0.5}}> {{
        mean = ReduceMean(x, axes)
        centered = Sub(x, mean)
        squares = Mul(centered, centered)
        variance = ReduceMean(squares, axes)
        sum = Mul(variance, n)
        v = Div(sum, less)
        {guard}
        y = Div(centered, deviation)
    }}"""
    model = parse(text)
    made = qc.compile(model, "fold-constants,fuse-supergroups", target="qnn-htp").model
    assert "LayerNormalization" in [node.op_type for node in made.graph.node]
    for size, off in ((1, 1e-3), (1e-3, 0.06)):
        feed = {"x": np.random.default_rng(1).normal(0, size, (1, 6, 6)).astype(np.float32)}
        np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=off)


def test_a_root_mean_square_of_channels_is_fused_between_transposes() -> None:
    text = """<ir_version: 11, opset_import: ["" : 23]>
    g (float[1, 8, 3, 5] x) => (float[1, 8, 3, 5] y)
    <int64[1] axes = {1}, float[8, 1, 1] scale, float e = {1e-6}> {
        squares = Mul(x, x)
        mean = ReduceMean(squares, axes)
        guarded = Add(mean, e)
        root = Sqrt(guarded)
        normal = Div(x, root)
        y = Mul(normal, scale)
    }"""
    model = parse(text)
    made = qc.compile(model, "fuse-supergroups", target="qnn-htp").model
    assert [node.op_type for node in made.graph.node] == ["Transpose", "RMSNormalization", "Transpose"]
    feed = random_feeds(model)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-4, atol=1e-5)
