"""What ONNX Runtime's optimizer for transformers has made of several ops computes the same in these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.decomposed import agree, types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc
from qc.ir.onnx.lift import lift

ATTENTION = "com.microsoft.Attention"
MULTI_HEAD = "com.microsoft.MultiHeadAttention"


def parsed(inputs: str, fused: str, weights: str = "", opset: int = 17) -> ModelProto:
    return parse(f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
    g (float[B, S, 12] x{inputs}) => (float[B, S, N] y) <{weights}> {{ {fused}  y = Neg(f) }}""")


def taken_apart(model: ModelProto, target: str = "npu") -> ModelProto:
    """The model without the op; both give the same numbers, where lengths are free and where they are not."""
    made = qc.compile(model, "decompose-ops", target=target).model
    assert not {node.op_type for node in made.graph.node if node.domain == "com.microsoft"}
    agree(made, model, 1e-4)
    fixed = ModelProto.FromString(model.SerializeToString())
    for value in [*fixed.graph.input, *fixed.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in ("B", "S", "T"):
                dim.dim_value = 2
    agree(qc.compile(fixed, "decompose-ops", target=target).model, model, 1e-4)
    return made


def stays(model: ModelProto, target: str = "npu") -> bool:
    made = qc.compile(model, "decompose-ops", target=target).model
    return any(node.domain == "com.microsoft" for node in made.graph.node)


def shape_of(model: ModelProto, name: str) -> tuple[int | str | None, ...] | None:
    """The shape of a tensor of a model, as far as it is known when the model is lifted."""
    return next(value.type.shape for value in lift(model).graph.values() if value.name == name)


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        ("", "<num_heads = 3>(x, w, b)"),
        ("", "<num_heads = 2, scale = 0.5, unidirectional = 1>(x, w)"),
        (", int32[B, S] m", "<num_heads = 3>(x, w, b, m)"),
        (", int32[B, S] m", "<num_heads = 3, unidirectional = 1, mask_filter_value = -5.0>(x, w, b, m)"),
        (", int32[B, S, S] m", "<num_heads = 1>(x, w, b, m)"),
        (", int32[B] m", "<num_heads = 3>(x, w, b, m)"),
        (", float[1, 3, S, S] a", "<num_heads = 3>(x, w, b, , , a)"),
        (", int32[B, S] m, float[B, 1, S, S] a", "<num_heads = 3, unidirectional = 1>(x, w, b, m, , a)"),
    ],
)
def test_attention_is_three_products_and_those_of_heads(inputs: str, call: str, opset: int) -> None:
    model = parsed(inputs, f"f = {ATTENTION}{call}", "float[12, 36] w, float[36] b", opset)
    made = taken_apart(model)
    assert types(made).count("MatMul") == 5
    assert shape_of(model, "f") == ("B", "S", 12)
    on_cpu = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert types(on_cpu).count("MatMul") == 3 and "MultiHeadAttention" in types(on_cpu)
    agree(on_cpu, model, 1e-4)


def test_projections_run_in_integers_beside_attention_in_float() -> None:
    weights = "float[12, 36] w, float[36] b"
    model = parsed(", int32[B, S] m", f"f = {ATTENTION}<num_heads = 3>(x, w, b, m)", weights)
    made = qc.compile(model, "w8a8", data=random_feeds(model, 4), target="ort-cpu", threads=1)
    multiplied = made.coverage.multiplied
    assert "MultiHeadAttention" in types(made.model) and multiplied.quantized > 0.7 * multiplied.total


def test_heads_of_values_may_have_another_width() -> None:
    call = f"f = {ATTENTION}<num_heads = 3, qkv_hidden_sizes = [9, 9, 6]>(x, w, b)"
    assert types(taken_apart(parsed("", call, "float[12, 24] w, float[24] b"))).count("MatMul") == 5


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        (", float[12, 36] w", "<num_heads = 3>(x, w, b)"),  # data
        (", float[2, B, 3, P, 4] p", "<num_heads = 3>(x, w, b, , p)"),  # a cache
        (", int32[M] m", "<num_heads = 3>(x, w, b, m)"),  # maybe beginnings as well
        (", int32[B, 1] m", "<num_heads = 3>(x, w, b, m)"),  # a single place, which hides nothing
        ("", "<num_heads = 3, do_rotary = 1>(x, w, b)"),
    ],
)
def test_attention_of_another_kind_stays(inputs: str, call: str) -> None:
    weights = "float[36] b" if " w" in inputs else "float[12, 36] w, float[36] b"
    assert stays(parsed(inputs, f"f = {ATTENTION}{call}", weights))


def test_attention_whose_keys_are_read_stays() -> None:
    call = f"f, p = {ATTENTION}<num_heads = 3>(x, w, b)"
    model = parsed("", call, "float[12, 36] w, float[36] b")
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, [2, "B", 3, "S", 4])
    )
    assert stays(model)


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        (", float[B, T, 12] k, float[B, T, 6] v", "<num_heads = 3>(x, k, v)"),
        (", float[B, T, 12] k, float[B, T, 6] v", "<num_heads = 3, scale = 0.3>(x, k, v, b)"),
        (", float[B, 3, T, 4] k, float[B, 3, T, 4] v", "<num_heads = 3>(x, k, v)"),
        (", float[B, T, 12] k, float[B, T, 6] v, int32[B, T] m", "<num_heads = 3>(x, k, v, b, m)"),
        (", float[B, T, 12] k, float[B, T, 6] v, int32[B, S, T] m", "<num_heads = 3>(x, k, v, , m)"),
        (", float[B, S, 12] k, float[B, S, 6] v", "<num_heads = 3, unidirectional = 1>(x, k, v, b)"),
        (", float[B, T, 12] k, float[B, T, 6] v, float[B, 3, S, T] a", "<num_heads = 3>(x, k, v, b, , a)"),
    ],
)
def test_attention_of_many_heads_is_its_products(inputs: str, call: str) -> None:
    model = parsed(inputs, f"f = {MULTI_HEAD}{call}", "float[30] b")
    assert types(taken_apart(model)).count("MatMul") == 2
    assert stays(model, "ort-cpu")  # its kernel is quicker in float
    assert shape_of(model, "f") == (None if "3, T, 4" in inputs else ("B", "S", 6))


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        (", float[B, S, 12] k, float[36] b", "(x, k, k, b)"),
        (", float[B, S, 12] k, float[B, 3, P, 4] p", "(x, k, k, , , , p, p)"),
        (", float[B, T, 12] k", "<unidirectional = 1>(x, k, k)"),  # which ends before the last key
    ],
)
def test_attention_of_many_heads_of_another_kind_stays(inputs: str, call: str) -> None:
    attributes, read = call.removeprefix("<").split(">") if call.startswith("<") else ("", call)
    given = ", ".join(["num_heads = 3", *([attributes] if attributes else [])])
    assert stays(parsed(inputs, f"f = {MULTI_HEAD}<{given}>{read}"))


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize(
    "fused",
    [
        "f = com.microsoft.SkipLayerNormalization<epsilon = 0.1>(x, k, g, b)",
        "f = com.microsoft.SkipLayerNormalization(x, k, g, , b)",
        "n, , , s = com.microsoft.SkipLayerNormalization(x, k, g, b, b)  f = Add(n, s)",
        "f = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.1>(x, k, g)",
        "n, , , s = com.microsoft.SkipSimplifiedLayerNormalization(x, k, g, b)  f = Add(n, s)",
        "f = com.microsoft.BiasGelu(x, b)",
        "f = com.microsoft.Gelu(x)",
        "f = com.microsoft.FastGelu(x)",
        "f = com.microsoft.FastGelu(x, b)",
    ],
)
def test_ops_with_a_sum_in_front_are_what_they_were(fused: str, opset: int) -> None:
    model = parsed(", float[B, S, 12] k", fused, "float[12] g, float[12] b", opset)
    taken_apart(model)
    assert shape_of(model, "f") == ("B", "S", 12)


def test_a_norm_whose_mean_is_read_stays() -> None:
    fused = "n, m = com.microsoft.SkipLayerNormalization(x, x, g, b)  f = Sub(n, m)"
    assert stays(parsed("", fused, "float[12] g, float[12] b"))


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize(
    ("inputs", "call", "results"),
    [
        ("int32[B, S] i, int32[B, S] t", "(i, t, w, p, s, g, b)", "f, u"),
        ("int32[B, S] i", "(i, , w, p, , g, b)", "f, u"),
        ("int32[B, S] i, int32[B, S] t, int32[B, S] m", "(i, t, w, p, s, g, b, m)", "f, n"),
        ("int32[B, S] i, int32[B, S] o", "<epsilon = 0.1>(i, , w, p, , g, b, , o)", "f, , e"),
    ],
)
@pytest.mark.parametrize("target", ["npu", "ort-cpu"])
def test_an_embedding_is_its_lookups(inputs: str, call: str, results: str, opset: int, target: str) -> None:
    others = {"n": ", int32[B] n", "e": ", float[B, S, 6] e"}
    outputs = "".join(text for name, text in others.items() if name in results)
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
    g ({inputs}) => (float[B, S, 6] y{outputs})
    <float[9, 6] w, float[8, 6] p, float[2, 6] s, float[6] g, float[6] b> {{
        {results} = com.microsoft.EmbedLayerNormalization{call}  y = Neg(f)
    }}""")
    assert "Gather" in types(taken_apart(model, target))


@pytest.mark.parametrize(
    ("attributes", "is_known"),
    [("", True), ("rotary_embedding_dim = 2, num_heads = 3", True), ("interleaved = 1", False)],
)
def test_a_rotary_embedding_is_its_products(attributes: str, is_known: bool) -> None:
    half = 1 if "dim" in attributes else 2
    given = attributes and f"<{attributes}>"
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[B, 3, S, 4] x, int64[B, S] i) => (float[B, 3, S, 4] y)
    <float[9, {half}] c, float[9, {half}] s> {{
        y = com.microsoft.RotaryEmbedding{given}(x, i, c, s)
    }}""")
    assert stays(model, "ort-cpu")  # ONNX Runtime has a kernel for it
    if is_known:
        taken_apart(model, "qnn-htp")
    else:
        assert stays(model, "qnn-htp")


@pytest.mark.parametrize("sides", ["A", "B", "AB"])
@pytest.mark.parametrize("turned", ["", "transA = 1, ", "transB = 1, "])
def test_batches_of_a_product_may_be_transposed(sides: str, turned: str) -> None:
    given = turned + ", ".join(f"transBatch{side} = 1" for side in sides)
    rows, length, columns = 2, 5, 7
    shapes = {}
    for side, (row, column) in {"A": (rows, length), "B": (length, columns)}.items():
        row, column = (column, row) if f"trans{side}" in turned else (row, column)
        shapes[side] = (row, 3, 4, column) if side in sides else (3, 4, row, column)
    texts = {side: ", ".join(map(str, shape)) for side, shape in shapes.items()}
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[{texts["A"]}] x, float[{texts["B"]}] z) => (float[a, b, c, d] y) {{
        f = com.microsoft.FusedMatMul<{given}>(x, z)  y = Neg(f)
    }}""")
    assert shape_of(model, "f") == (3, 4, rows, columns)
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert "MatMul" in types(made)
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-5)


def test_a_vector_is_not_transposed() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[5] x, float[5, 3] z) => (float[3] y) {
        f = com.microsoft.FusedMatMul<transA = 1>(x, z)  y = Neg(f)
    }""")
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    feed = random_feeds(model, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-5)


def test_float16_halves_the_weights_of_what_was_fused() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1, 32, 8, 8] x) => (float[1, 32, 8, 8] y) <float[32, 32, 3, 3] w> {
        y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1]>(x, w)
    }""")
    made = qc.compile(model, "fp16").model
    assert made.ByteSize() < 0.6 * model.ByteSize()
    agree(made, model, 0.02)
