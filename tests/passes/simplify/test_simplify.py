"""The passes that rewrite the float graph, on what is special."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PREPARE, apply, check, run_model

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


def test_a_cast_to_the_type_of_a_tensor_is_folded() -> None:
    """So a bias of zeros, which a function makes in the type of the data, is a constant."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[1, 2, 4, 4] x, bool[2] c) => (float[1, 3, 4, 4] y, float[2] k)
    <float[3, 2, 1, 1] w, double zero = {0}, int64[1] three = {3}> {
        z = CastLike(zero, x)
        b = Expand(z, three)
        y = Conv(x, w, b)
        k = CastLike(c, x)
    }""")
    assert kinds(simplified("fold-constants", model)) == ["Conv", "Cast"]


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("s = Shape(x) g = Gather(s, two)", []),
        ("s = Shape(x) g = Gather(s, lasts)", []),
        ("s = Shape(x) i = Cast<to = 6>(s) g = Slice(i, second, far)", []),
        ("s = Shape<start = 1>(x) g = Slice(s, first, far)", []),
        ("s = Shape(x) g = Gather(s, zero)", ["Shape", "Gather", "Cast"]),
        ("s = Shape(x) i = Identity(s) g = Slice(i, zeros, first)", ["Shape", "Identity", "Slice", "Cast"]),
    ],
)
def test_known_lengths_beside_a_free_one_are_constant(told: str, left: list[str]) -> None:
    """Of the heads of an attention, the scale of its products and more, in most models with a free batch."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]> g (float[N, 2, 3] x) => (float[N, 2, 3] y) <
        int64 zero = {{0}}, int64 two = {{2}}, int64[3] lasts = {{-1, 2, -1}}, int64[1] zeros = {{0}},
        int64[1] first = {{1}}, int64[1] second = {{2}}, int64[1] far = {{9000}}
    > {{ {told} f = Cast<to = 1>(g) y = Mul(x, f) }}""")
    assert kinds(simplified("fold-constants, eliminate-dead-code", model)) == [*left, "Mul"]


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
