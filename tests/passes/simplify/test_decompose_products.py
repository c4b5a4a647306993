"""Gemm, and what ONNX Runtime has fused, in the products that kernels for integers have."""

from __future__ import annotations

import pytest
from onnx import ModelProto
from support.decomposed import agree, types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc
from qc.ir.onnx.lift import lift


@pytest.mark.parametrize(
    ("gemm", "expected"),
    [
        ("Gemm(x, v, b)", ["Gemm"]),
        ("Gemm<transB = 1>(x, v)", ["Gemm"]),
        ("Gemm<alpha = 0.5, beta = 2.0, transA = 1>(x, v, b)", ["Gemm"]),
        ("Gemm<beta = 0.0>(x, v, d)", ["Gemm"]),
        ("Gemm(x, v, one)", ["Gemm"]),
        ("Gemm(x, v, rows)", ["Gemm", "Add"]),
        ("Gemm(x, v, all)", ["Gemm", "Add"]),
        ("Gemm<alpha = 0.5, beta = 2.0>(x, v, d)", ["Mul", "Gemm", "Add"]),
        ("Gemm<alpha = 0.5, beta = 2.0>(x, d, b)", ["Gemm", "Mul", "Mul", "Add"]),
    ],
)
def test_a_gemm_has_no_factors_and_adds_one_number_to_each_column(gemm: str, expected: list[str]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[6, 6] x, float[6, 6] d) => (float[6, 6] y)
    <float[6, 6] v, float[6, 6] all, float[6, 1] rows, float[1, 6] b, float[1] one> {{ y = {gemm} }}""")
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert sorted(types(made)) == sorted(expected)
    (left,) = (node for node in made.graph.node if node.op_type == "Gemm")
    assert not {attribute.name for attribute in left.attribute} & {"alpha", "beta"}
    agree(made, model)


@pytest.mark.parametrize(
    ("gemm", "expected"),
    [
        ("Gemm(x, d, b)", ["MatMul", "Add"]),
        ("Gemm<alpha = 0.5, transA = 1, transB = 1>(x, d)", ["Transpose", "Transpose", "MatMul", "Mul"]),
        ("Gemm<beta = 2.0>(v, d, x)", ["Transpose", "MatMul", "Transpose", "Mul", "Add"]),
        ("Gemm<alpha = 0.5, beta = 2.0>(x, v, b)", ["Gemm"]),
    ],
)
def test_a_gemm_by_data_is_a_matmul_where_there_is_none(gemm: str, expected: list[str]) -> None:
    """A constant in front of data is turned into a weight behind it, as any MatMul's."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 4] x, float[4, 4] d) => (float[4, 4] y) <float[4, 4] v, float[1, 4] b> {{ y = {gemm} }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert sorted(types(made)) == sorted(expected)
    agree(made, model)


def test_a_gemm_of_old_keeps_a_bias() -> None:
    model = parse("""<ir_version: 7, opset_import: ["" : 9]>
    g (float[3, 4] x, float[4, 6] v, float[3, 6] all) => (float[3, 6] y) { y = Gemm(x, v, all) }""")
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert types(made) == ["Gemm", "Add"]
    agree(made, model)


def test_a_gemm_whose_columns_are_not_known_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 6] x, float[6, N] v) => (float[4, N] y) { y = Gemm<alpha = 0.5>(x, v) }""")
    assert types(qc.compile(model, "decompose-ops", target="ort-cpu").model) == ["Gemm"]


@pytest.mark.parametrize(
    ("fused", "expected"),
    [
        ('com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1]>(x, v, b)', ["Conv", "Relu"]),
        (
            'com.microsoft.FusedConv<activation = "LeakyRelu", activation_params = [0.3]>(x, v)',
            ["Conv", "LeakyRelu"],
        ),
        (
            'com.microsoft.FusedConv<activation = "Clip", activation_params = [0.0, 1.0]>(x, o, b, x)',
            ["Conv", "Add", "Clip"],
        ),
        (
            'com.microsoft.FusedConv<activation = "HardSigmoid", activation_params = [0.2, 0.4]>(x, v, b)',
            ["Conv", "HardSigmoid"],
        ),
        ("com.microsoft.FusedMatMul<transA = 1, alpha = 0.5>(x, x)", ["Transpose", "MatMul", "Mul"]),
        ("com.microsoft.FusedMatMul<transB = 1>(x, m)", ["MatMul"]),
        ("com.microsoft.FusedMatMul<transBatchA = 1>(x, x)", ["Transpose", "MatMul"]),
        ("com.microsoft.QuickGelu<alpha = 1.0>(x)", ["Sigmoid", "Mul"]),
        ("com.microsoft.QuickGelu(x)", ["Mul", "Sigmoid", "Mul"]),
    ],
)
@pytest.mark.parametrize("opset", [10, 17])
def test_what_onnx_runtime_has_fused_is_taken_apart(opset: int, fused: str, expected: list[str]) -> None:
    """As in models that it saved when it had optimized them; shapes behind such ops are known as well."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
    g (float[4, 4, 4, 4] x) => (float[a, b, c, d] y)
    <float[4, 4, 3, 3] v, float[4, 4, 1, 1] o, float[4] b, float[5, 4] m> {{ f = {fused}  y = Neg(f) }}""")
    made = qc.compile(model, "decompose-ops", target="npu").model
    assert types(made) == [*expected, "Neg"]
    agree(made, model)
    shape = run_model(model, random_feeds(model, 1)[0])["y"].shape
    if "FusedMatMul" not in fused or (opset == 17 and expected[:1] == ["Transpose"]):
        assert shape_of(model, "f") == shape


def shape_of(model: ModelProto, name: str) -> tuple[int | str | None, ...] | None:
    """The shape of a tensor of a model, as far as it is known when the model is lifted."""
    return next(value.type.shape for value in lift(model).graph.values() if value.name == name)


@pytest.mark.parametrize(
    ("rows", "product", "expected"),
    [
        ("Reshape(x, row)", "Mul(a, b)", ["Expand", "Mul", "Relu", "Reshape", "Reshape"]),
        ("Reshape(x, row)", "Mul(b, a)", ["Expand", "Mul", "Relu", "Reshape", "Reshape"]),
        ("Reshape(x, row)", "MatMul(a, b)", ["Expand", "Mul", "Relu", "Reshape", "Reshape"]),
        ("Reshape(x, row)", "Add(a, b)", ["Add", "Relu", "Reshape", "Reshape"]),
        ("Reshape(x, column)", "Mul(a, b)", ["Mul", "Relu", "Reshape", "Reshape"]),
        ("Identity(x)", "Mul(a, b)", ["Identity", "Mul", "Relu", "Reshape"]),
    ],
)
def test_columns_by_reshaped_rows_are_a_product_of_whole_tensors(
    rows: str, product: str, expected: list[str]
) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 5] x) => (float[N, M] y)
    <int64[2] column = {{5, 1}}, int64[2] row = {{1, 5}}> {{
        r = Relu(x)
        a = Reshape(r, column)
        b = {rows}
        y = {product}
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert sorted(types(made)) == expected
    agree(made, model)


@pytest.mark.parametrize("product", ["Mul(a, b)", "Mul(b, a)"])
def test_columns_and_rows_may_have_axes_of_one_behind_them(product: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3] x) => (float[2, 3, 3, 1] y) <int64[2] columns = {{2, 3}}, int64[2] rows = {{1, 3}}> {{
        r = Relu(x)
        a = Unsqueeze(r, columns)
        b = Unsqueeze(x, rows)
        y = {product}
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert "Expand" in types(made)
    agree(made, model)


@pytest.mark.parametrize(
    ("made", "attributes", "expected"),
    [
        ("Mul(x, x)", "<keepdims = 0>", ["Mul", "ReduceSum", "Reshape"]),
        ("Mul(x, x)", "<keepdims = 1>", ["Mul", "ReduceSum"]),
        ("Add(x, x)", "<keepdims = 0>", ["Add", "ReduceSum"]),
    ],
)
def test_a_sum_of_products_keeps_its_axes(made: str, attributes: str, expected: list[str]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 3, 4] x) => (float[A, B] y) <int64[1] axes = {{-1}}> {{
        m = {made}
        y = ReduceSum{attributes}(m, axes)
    }}""")
    if "keepdims = 1" in attributes:
        model.graph.output[0].type.tensor_type.shape.dim.add(dim_param="C")
    compiled = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(compiled) == expected
    agree(compiled, model)


@pytest.mark.parametrize(
    ("axes", "keeps", "shape", "expected"),
    [
        ("-1, -2", 1, "2, 3, 1, 1", ["Transpose", "ReduceMean"]),
        ("-1, -2", 0, "2, 3", ["Transpose", "ReduceMean", "Reshape"]),
        ("-1", 0, "2, 3, 1", ["Transpose", "ReduceMean"]),
        ("-2", 1, "2, 3, 1, 4", ["Transpose", "ReduceMean"]),
    ],
)
def test_a_mean_is_along_axes_of_several_numbers(
    axes: str, keeps: int, shape: str, expected: list[str]
) -> None:
    """As PyTorch's newer exporter writes the pool in front of Swin's classifier."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 4, 1, 3] x) => (float[{shape}] y) {{
        t = Transpose<perm = [0, 3, 2, 1]>(x)
        y = ReduceMean<axes = [{axes}], keepdims = {keeps}>(t)
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == expected
    (mean,) = [node for node in made.graph.node if node.op_type == "ReduceMean"]
    assert len(next(one for one in mean.attribute if one.name == "axes").ints) == 1
    agree(made, model)


def test_a_constant_factor_behind_an_instance_normalization_stands_first() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 4, 3, 3] x) => (float[1, 4, 3, 3] y, float[1, 4, 3, 3] z)
    <int64[3] rows = {1, 1, -1}, int64[4] picture = {1, 4, 3, 3}, float[4, 1, 1] factor,
     float[1] s, float[1] b> {
        r = Reshape(x, rows)
        n = InstanceNormalization(r, s, b)
        p = Reshape(n, picture)
        y = Mul(p, factor)
        z = Mul(x, factor)
    }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    places = [list(node.input).index("factor") for node in made.graph.node if node.op_type == "Mul"]
    assert places == [0, 1]
    agree(made, model)


@pytest.mark.parametrize(
    ("height", "between", "rows"),
    [
        (8, "v = Mul(p, factor)", True),
        (2, "m = Mul(p, factor) v = Relu(m)", True),
        (8, "v = Concat<axis = 1>(x, p)", True),
        (9, "v = Mul(p, factor)", False),
        (1, "v = Mul(p, factor)", False),
        (8, "v = MaxPool<kernel_shape = [1, 1]>(p)", False),
        (8, "v = Add(p, x)", False),
    ],
)
@pytest.mark.parametrize("product", ["Mul(v, g)", "Mul(g, v)"])
def test_a_silu_of_a_low_picture_is_one_of_a_row(height: int, between: str, rows: bool, product: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 4, {height}, 3] x) => (float[1, M, {height}, 3] y)
    <int64[3] flat = {{1, 4, -1}}, int64[4] picture = {{1, 4, {height}, 3}}, float[4, 1, 1] factor> {{
        t = Tanh(x)  r = Reshape(t, flat)  s = Sin(r)  p = Reshape(s, picture)
        {between}
        g = Sigmoid(v)
        y = {product}
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made).count("Sigmoid") == 1, "the one that nothing reads any more goes"
    (gate,) = (node.output[0] for node in made.graph.node if node.op_type == "Sigmoid")
    shape = shape_of(made, gate)
    assert shape is None or (shape[2] == 1) == (rows or height == 1)
    assert types(made).count("Reshape") == (4 if rows else 2)
    agree(made, model)
