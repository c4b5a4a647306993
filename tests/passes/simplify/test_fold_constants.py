"""What fold-constants computes, what it leaves, and how large models may become."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from support.models import model_of, parse
from support.pipelines import PREPARE, apply, run_model
from support.simplified import kinds, simplified

from qc.ir.errors import ModelError
from qc.ir.facts.constants import initializer
from qc.ir.onnx.lower import lower


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
    assert initializer(product.inputs[1]) is not None


@pytest.mark.parametrize(
    "told",
    [
        "s = Size(x) i = Identity(s) f = Cast<to = 1>(i) y = Div(x, f)",
        "s = Shape(x) c = Cast<to = 9>(s) f = Cast<to = 1>(c) g = Gather(f, one) y = Div(x, g)",
        "s = Shape(x) c = Cast<to = 10>(s) f = Cast<to = 1>(c) g = Gather(f, one) y = Div(x, g)",
    ],
    ids=["how many numbers", "whether there are any", "rounded"],
)
def test_what_is_told_of_a_shape_is_what_its_ops_make_of_it(told: str) -> None:
    """With a free length beside, which keeps it from being computed as a constant."""
    model = parse(f"g (float[N, 2049] x) => (float[N, 2049] y) <int64 one = {{1}}> {{ {told} }}")
    ir, _, _ = apply("fold-constants", model)
    feed = {"x": np.ones((2, 2049), np.float32)}
    np.testing.assert_array_equal(run_model(lower(ir), feed)["y"], run_model(model, feed)["y"])
