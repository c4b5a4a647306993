"""The passes that rewrite the float graph, on what is special."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PREPARE, apply, check, run_model

import qc
from qc.ir.errors import ModelError
from qc.ir.onnx.lower import lower


def simplified(pipeline: str, model: ModelProto, changed: bool = True) -> ModelProto:
    """The model after a pipeline, after checking that the outputs stayed as they were."""
    ir, _, report = apply(pipeline, model)
    lowered = lower(ir)
    check(lowered)
    assert bool(report.actions) == changed
    for feed in random_feeds(model):
        expected = run_model(model, feed)
        for name, array in run_model(lowered, feed).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4)
    return lowered


def kinds(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# -- folding of batch norms ------------------------------------------------------------------------

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
@pytest.mark.parametrize("op_type", ["Mul", "Add"])
def test_constants_that_are_folded(op_type: str, constant: str, folded: bool) -> None:
    shape = "A, B, C, D, E" if "1, 1, 2" in constant else "A, B, C, D"
    text = f"""g (float[1, 2, 3, 3] x) => (float[{shape}] y) <float[2, 2, 1, 1] w, {constant}> {{
        a = Conv(x, w)
        y = {op_type}(k, a)
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


# -- folding of constants --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_float": 0.5}, np.float32(0.5)),
        ({"value_floats": [0.5, 2.0]}, np.asarray([0.5, 2], np.float32)),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [1, 2]}, np.asarray([1, 2])),
        ({"value_string": "ü"}, "ü"),
        ({"value_strings": ["a", "b"]}, ["a", "b"]),
    ],
)
def test_every_kind_of_constant(attribute: dict[str, object], expected: object) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], **attribute),
        helper.make_node("Identity", ["c"], ["y"]),
    ]
    ir, _, _ = apply("fold-constants", model_of(nodes, [], ["y"]))
    const = ir.graph.values()[-1].const or next(v.const for v in ir.graph.values() if v.const is not None)
    array = const.numpy()
    assert array.shape == np.shape(expected)
    assert array.tolist() == np.asarray(expected).tolist()


def test_constants_of_branches_become_initializers() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        k = Constant<value = float[2] {1, 2}>()
        y = If(c) <
            then_branch = t () => (float[2] r) {
                m = Constant<value = float[2] {3, 4}>()
                a = Add(k, m)
                r = Add(a, x)
            },
            else_branch = e () => (float[2] u) { u = Constant<value = float[2] {5, 6}>() }
        >
    }"""
    assert kinds(simplified(PREPARE, parse(text))) == ["If"]


def test_constants_of_functions_stay() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    g (float[2] x) => (float[2] y) { y = my.shifted(x) }
    <domain: "my", opset_import: ["" : 21]>
    shifted (v) => (s) { c = Constant<value = float {3}>() d = Identity(c) s = Add(v, d) }"""
    folded = simplified(PREPARE, parse(text))
    assert [node.op_type for node in folded.functions[0].node] == ["Constant", "Add"]


def test_what_the_runtime_cannot_compute_is_an_error_in_one_sentence() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w> { a = NoSuchOp(w) y = Add(x, a) }"
    with pytest.raises(ModelError, match="NoSuchOp"):
        apply("fold-constants", parse(text))


def test_constants_of_small_types() -> None:
    text = """g (float[4] x) => (float[4] y) <float[4] w = {1, -2, 3, 0.5}> {
        a = Cast<to = 16>(w)
        b = Cast<to = 1>(a)
        y = Add(x, b)
    }"""
    folded = lower(apply(PREPARE, parse(text))[0])
    assert kinds(folded) == ["Add"]
    np.testing.assert_array_equal(
        run_model(folded, {"x": np.zeros(4, np.float32)})["y"], np.asarray([1, -2, 3, 0.5], np.float32)
    )


# -- identities and dead code ----------------------------------------------------------------------


def test_dropout_in_training_stays() -> None:
    text = """g (float[4] x) => (float[4] y) <float ratio = {0.5}, bool training = {1}> {
        a = Dropout(x, ratio, training)
        y = Neg(a)
    }"""
    assert kinds(lower(apply("eliminate-identity", parse(text))[0])) == ["Dropout", "Neg"]


def test_a_chain_of_identities_between_an_input_and_an_output() -> None:
    text = "g (float[4] x) => (float[4] y) { a = Identity(x) b = Identity(a) y = Identity(b) }"
    assert kinds(simplified("eliminate-identity", parse(text))) == ["Identity"]


def test_an_identity_between_two_outputs() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Identity(y) }"
    assert kinds(simplified("eliminate-identity", parse(text), changed=False)) == ["Neg", "Identity"]


def test_dead_code_in_a_branch() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] r) <float[2] w = {1, 2}> { a = Add(x, w) r = Neg(x) },
            else_branch = e () => (float[2] u) { u = Abs(x) }
        >
    }"""
    ir, _, _ = apply("eliminate-dead-code", parse(text))
    branch = ir.graph.ops()[0].subgraphs["then_branch"]
    assert [op.op_type for op in branch.ops()] == ["Neg"]
    assert branch.value_named("w") is None


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


# -- what folding stores ---------------------------------------------------------------------------

FOURIER = """g (float[2, 64] x) => (float[2, 256] y) <
    float[64, 8] u, float[8, 64] v,
    int64 rows = {64}, int64 columns = {256}, int64 zero = {0}, int64 one = {1}, int64[1] axis = {1}
> {
    h = MatMul(x, u)
    z = MatMul(h, v)
    times = Range(zero, rows, one)
    waves = Range(zero, columns, one)
    t = Cast<to = 1>(times)
    f = Cast<to = 1>(waves)
    column = Unsqueeze(t, axis)
    angles = Mul(column, f)
    basis = Cos(angles)
    y = MatMul(z, basis)
}"""


def stored(model: ModelProto) -> int:
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in model.graph.initializer)


def test_folding_makes_no_model_larger() -> None:
    model = parse(FOURIER)
    ir, _, _ = apply("fold-constants", model)
    assert stored(lower(ir)) <= stored(model) + 4096
    assert "Cos" in kinds(lower(ir))
    (remark,) = [remark for remark in ir.journal.remarks if remark.kind == "skip"]
    assert "65.3 KB larger" in remark.reason and "max_growth" in remark.asked_by
    assert "Cos" not in kinds(lower(apply("fold-constants{max_growth=100}", model)[0]))
    assert not apply("fold-constants", ir)[2].actions


@pytest.mark.parametrize(
    "text",
    [
        # Narrow storage, codes with a scale, and a copy of what another op reads too: all are 8-bit weights.
        "w = Cast<to = 1>(h) y = MatMul(x, w)",
        "c = Cast<to = 1>(q) w = Mul(c, s) y = MatMul(x, w)",
        "w = Transpose(e) p = Gather(e, i) r = Add(x, p) y = MatMul(r, w)",
    ],
)
def test_weights_are_folded_from_what_stores_them(text: str) -> None:
    model = parse(
        f"""g (float[2, 64] x, int64[2] i) => (float[2, 96] y) <
            float16[64, 96] h, int8[64, 96] q, float[96] s, float[96, 64] e
        > {{ {text} }}"""
    )
    ir, _, _ = apply("fold-constants{max_growth=0}", model)
    (product,) = [op for op in ir.graph.ops() if op.op_type == "MatMul"]
    assert ir.graph.constant(ir.graph.op_inputs(product)[1]) is not None


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


@pytest.mark.parametrize("spelling", HARD_SWISHES)
def test_a_hard_swish_is_a_product_with_a_hard_sigmoid_on_onnx_runtime(spelling: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : {14 if spelling == "one op" else 11}]>
    g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) <
        float[4, 3, 1, 1] w, float low = {{0}}, float half = {{0.5}}, float one = {{1}}, float three = {{3}},
        float six = {{6}}
    > {{ c = Conv(x, w) {HARD_SWISHES[spelling]} }}""")
    made = qc.compile(model, "fuse-supergroups,eliminate-dead-code", target="ort-cpu").model
    assert [node.op_type for node in made.graph.node] == ["Conv", "HardSigmoid", "Mul"]
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-5, atol=1e-6)
    again = qc.compile(made, "fuse-supergroups", target="ort-cpu").model
    assert again.graph.node == made.graph.node


@pytest.mark.parametrize(
    ("opset", "slopes", "fits"), [(8, "-0.5, 0, 1", True), (8, "0, 2, 1", False), (7, "0", False)]
)
def test_a_prelu_is_the_larger_one_of_two_on_onnx_runtime(opset: int, slopes: str, fits: bool) -> None:
    count = slopes.count(",") + 1
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y)
    <float[{count}, 1, 1] s = {{{slopes}}}> {{ y = PRelu(x, s) }}""")
    made = qc.compile(model, "fuse-supergroups", target="ort-cpu").model
    assert [node.op_type for node in made.graph.node] == (["Mul", "Max"] if fits else ["PRelu"])
    feed = random_feeds(model, 1)[0]
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


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


@pytest.mark.parametrize("function", ["Erf", "Tanh"])
def test_a_model_with_a_gelu_gets_the_opset_that_has_it(function: str) -> None:
    """Where ONNX Runtime dequantizes for each reader, it does not find a GELU of several ops."""
    model = parse(gelu_by(function, 11))
    feeds = random_feeds(model, 4)
    compiled = qc.compile(model, "w8a8", data=feeds)
    (opset,) = compiled.model.opset_import
    assert opset.version == 20 and "Gelu" in kinds(compiled.model) and function not in kinds(compiled.model)
    assert any("opset 11 to 20, which has the ops that ort-cpu runs" in note for note in compiled.notes)
    expected = run_model(model, feeds[0])["y"]
    assert np.abs(run_model(compiled.model, feeds[0])["y"] - expected).max() < 0.05 * np.abs(expected).max()


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
