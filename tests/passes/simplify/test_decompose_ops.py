"""Ops in other ops compute what they did, and are written so only where that is so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.decomposed import agree, types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc

RANDOM = np.random.default_rng(0)
FLOAT = onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("opset", "slopes", "fits"), [(8, "-0.5, 0, 1", True), (8, "0, 2, 1", False), (7, "0", False)]
)
def test_a_prelu_is_the_larger_one_of_two_on_onnx_runtime(opset: int, slopes: str, fits: bool) -> None:
    count = slopes.count(",") + 1
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y)
    <float[{count}, 1, 1] s = {{{slopes}}}> {{ y = PRelu(x, s) }}""")
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert [node.op_type for node in made.graph.node] == (["Mul", "Max"] if fits else ["PRelu"])
    feed = random_feeds(model, 1)[0]
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(
    ("shape", "offset", "scale", "made_of"),
    [
        ("N, 3", "1, -2, 0.5", "2, 1, 0.25", ["Sub", "Mul", "Relu"]),
        ("N, 3", "0, 0, 0", "2, 1, 0.25", ["Mul", "Relu"]),
        ("3", "0.5", "1", ["Sub", "Relu"]),
        ("N, 3", "0", "1", ["Identity", "Relu"]),
        ("N, F", "0.5, 1, 2", "2, 1, 1", ["Scaler", "Relu"]),
    ],
)
def test_a_scaler_is_a_difference_and_a_product_where_it_is_not_known(
    shape: str, offset: str, scale: str, made_of: list[str]
) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
    g (float[{shape}] x) => (float[{shape}] y) {{
        h = ai.onnx.ml.Scaler<offset : floats = [{offset}], scale : floats = [{scale}]>(x)
        y = Relu(h)
    }}""")
    assert types(qc.compile(model, "decompose-ops", target="ort-cpu").model) == ["Scaler", "Relu"]
    for target in ("tensorrt", "qnn-htp", "rknn"):
        assert types(qc.compile(model, "decompose-ops", target=target).model) == made_of
    made = qc.compile(model, "decompose-ops", target="openvino").model
    assert types(made) == made_of
    feed = {"x": RANDOM.normal(size=(3,) if shape == "3" else (2, 3)).astype(np.float32)}
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-6)


# -- products ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(
    ("equation", "left", "right", "fits"),
    [
        ("bind,bjnd->bnij", (2, 3, 4, 5), (2, 6, 4, 5), True),
        ("binh,tnh->bnit", (2, 3, 4, 5), (7, 4, 5), True),
        ("bhwc,hkc->bhwk", (1, 4, 6, 5), (4, 3, 5), True),
        ("ij,jk->ki", (3, 4), (4, 5), True),
        ("bn,bn->b", (2, 3), (2, 3), True),
        ("ij,jk->i", (3, 4), (4, 5), False),  # one of them alone is summed
        ("i,j->ij", (3,), (4,), False),  # nothing is
        ("...i,ij->...j", (2, 3, 4), (4, 5), True),
        ("...qhd,...khd->...hqk", (2, 6, 3, 4), (2, 5, 3, 4), True),  # attention of Flax
        ("...hqk,...khd->...qhd", (2, 7, 3, 6, 5), (2, 7, 5, 3, 4), True),
        ("...ij,...jk->...ik", (2, 7, 3, 4), (2, 7, 4, 5), True),
        ("ij,kj", (3, 4), (5, 4), True),
        ("b...i,ij", (2, 3, 4), (4, 5), True),
        ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5), False),  # broadcast
        ("ij,jk->ik", (3, 1), (4, 5), False),  # broadcast
    ],
)
def test_einsum(equation: str, left: tuple, right: tuple, fits: bool, is_constant: bool) -> None:
    arrays = RANDOM.normal(size=left).astype(np.float32), RANDOM.normal(size=right).astype(np.float32)
    given = [helper.make_tensor_value_info("a", FLOAT, left)]
    constants = [numpy_helper.from_array(arrays[1], "b")] if is_constant else []
    given += [] if is_constant else [helper.make_tensor_value_info("b", FLOAT, right)]
    shape = np.einsum(equation, *(np.broadcast_to(array, array.shape) for array in arrays)).shape
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
    result = helper.make_tensor_value_info("y", FLOAT, shape)
    graph = helper.make_graph([node], "g", given, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert ("MatMul" in types(made)) == fits == ("Einsum" not in types(made))
    agree(made, model)


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("besf,efd,bse->bsd", [(2, 4, 3, 6), (4, 6, 5), (2, 3, 4)], 2),  # experts and their weights
        ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 5), (5, 6)], 3),
        ("bi,i,bj->bj", [(2, 3), (3,), (2, 5)], 0),  # the second product sums nothing
        ("ij,jk,kl->il", [(2, 3), (3, 1), (4, 5)], 0),  # broadcast
    ],
)
def test_einsum_of_several_tensors(equation: str, shapes: list[tuple], count: int) -> None:
    given = [helper.make_tensor_value_info(f"x{i}", FLOAT, shape) for i, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [value.name for value in given], ["y"], equation=equation)
    result = helper.make_tensor_value_info("y", FLOAT, [None] * len(equation.split("->")[1]))
    graph = helper.make_graph([node], "g", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made).count("MatMul") == count and ("Einsum" in types(made)) == (not count)
    agree(made, model)


@pytest.mark.parametrize(
    ("equation", "left", "right", "fits"),
    [
        ("bct,bcs->bts", ["2*n", 3, 4], ["2*n", 3, "s"], True),
        ("...ct,...cs->...ts", ["n", 3, 4], ["n", 3, "s"], True),
        ("bts,bcs->bct", ["n", "t", 4], ["n", 3, 4], True),
        ("bct,bcs->bts", ["n", 3, 4], ["m", 3, 4], False),  # one of them may be 1, and broadcast
        ("bct,bcs->bts", [None, 3, 4], [None, 3, 4], False),
        ("bhct,bcs->bhts", ["n", 2, 3, 4], ["n", 3, 4], False),  # a Reshape would have to know n
    ],
)
def test_einsum_of_free_lengths(equation: str, left: list, right: list, fits: bool) -> None:
    given = [
        helper.make_tensor_value_info(name, FLOAT, dims)
        for name, dims in zip("ab", (left, right), strict=True)
    ]
    result = helper.make_tensor_value_info("y", FLOAT, None)
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert ("MatMul" in types(made)) == fits == ("Einsum" not in types(made))
    lengths = {"2*n": 2, "n": 2, "m": 2, "s": 5, "t": 6, None: 2}
    feed = {
        name: RANDOM.normal(size=[lengths.get(dim, dim) for dim in dims]).astype(np.float32)
        for name, dims in zip("ab", (left, right), strict=True)
    }
    found, expected = (run_model(one, feed)["y"] for one in (made, model))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "weight", "fits"),
    [
        ("abc,cde->abde", [12, 3, 4], True),  # queries, keys and values of Keras
        ("abcd,cde->abe", [3, 4, 5], True),  # what comes behind its attention
        ("acbd,cde->bea", [3, 4, 5], True),
        ("abc,dc->abd", [6, 12], True),
        ("abc,ace->abe", [2, 12, 5], False),  # a matrix for each sample
        ("abcd,cde->abe", [1, 4, 5], False),
    ],
)
def test_einsum_of_free_lengths_by_a_weight(equation: str, weight: list[int], fits: bool) -> None:
    first = equation.split(",")[0]
    lengths = dict(zip(equation.split(",")[1].split("->")[0], weight, strict=True))
    result = helper.make_tensor_value_info("y", FLOAT, None)
    node = helper.make_node("Einsum", ["a", "w"], ["y"], equation=equation)
    data = helper.make_tensor_value_info("a", FLOAT, [f"n{axis}" for axis in first])
    numbers = numpy_helper.from_array(RANDOM.normal(size=weight).astype(np.float32), "w")
    graph = helper.make_graph([node], "g", [data], [result], [numbers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = qc.compile(model, "decompose-ops", target="ort-cpu").model
    assert ("MatMul" in types(made)) == fits == ("Einsum" not in types(made))
    feed = {"a": RANDOM.normal(size=[lengths.get(axis, 2) for axis in first]).astype(np.float32)}
    found, expected = (run_model(one, feed)["y"] for one in (made, model))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["openvino", "openvino-avx2", "qnn-htp"])
def test_an_einsum_of_two_tensors_runs_in_integers(target: str) -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2, 64, 4, 64] q, float[2, 64, 4, 64] k) => (float[2, 4, 64, 64] y) {
        y = Einsum<equation = "bind,bjnd->bnij">(q, k)
    }""")
    result = qc.compile(model, "w8a8", data=random_feeds(model, 2), target=target, threads=1)
    assert "MatMul" in types(result.model) and "Einsum" not in types(result.model)
    assert result.coverage.multiplied.quantized == result.coverage.multiplied.total


# -- one op ------------------------------------------------------------------------------------------------


LARGE = "kernel_shape = [5, 5], strides = [5, 5]"  # a window larger than the picture, as EfficientNet has it
POOLED = "GlobalAveragePool"
TURNED = ("Transpose", "MatMul", "Transpose")
POWERS = ("ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add")
FLAT = ("Reshape", "LayerNormalization", "Reshape")


@pytest.mark.parametrize(
    ("body", "shape", "expected"),
    [
        ("y = Mish(x)", "2, 4, 3, 3", ["Softplus", "Tanh", "Mul"]),
        ("y = Softsign(x)", "2, 4, 3, 3", ["Abs", "Add", "Div"]),
        ("a = Abs(x) b = Add(a, three) y = Reciprocal(b)", "2, 4, 3, 3", ["Abs", "Add", "Div"]),
        ("y = Selu(x)", "2, 4, 3, 3", ["Elu", "Mul"]),
        ("y = Celu(x)", "2, 4, 3, 3", ["Elu"]),
        ("y = Celu <alpha = 0.5> (x)", "2, 4, 3, 3", ["Mul", "Elu", "Mul"]),
        ("y = ReduceLogSumExp <keepdims = 0> (x, axes)", "2, 4", [*POWERS, "Reshape"]),
        ("y = ReduceLogSumExp (x, last_axis)", "2, 4, 3, 1", [*POWERS]),
        ("y = ReduceLogSumExp (x)", "1, 1, 1, 1", [*POWERS]),
        ("y = ReduceL1 <keepdims = 0> (x, axes)", "2, 4", ["Abs", "ReduceSum"]),
        ("y = ReduceSumSquare (x, last_axis)", "2, 4, 3, 1", ["Mul", "ReduceSum"]),
        ("a = Abs(x) y = ReduceLogSum (a, axes)", "2, 4, 1, 1", ["Abs", "ReduceSum", "Log"]),
        ("y = Sum(x, x, x)", "2, 4, 3, 3", ["Add", "Add"]),
        ("y = Mean(x, x)", "2, 4, 3, 3", ["Add", "Mul"]),
        ("y = Sum(x)", "2, 4, 3, 3", ["Sum"]),
        ("y = Pow(x, three)", "2, 4, 3, 3", ["Mul", "Mul"]),
        ("a = Abs(x) y = Pow(a, third)", "2, 4, 3, 3", ["Abs", "Pow"]),
        ("y = ReduceL2 <keepdims = 1> (x, axes)", "2, 4, 1, 1", ["Mul", "ReduceMean", "Sqrt", "Mul"]),
        ("y = Gather <axis = 1> (x, all)", "2, 2, 2, 3, 3", ["Reshape"]),
        ("y = Gather <axis = 1> (x, some)", "2, 2, 1, 3, 3", ["Gather"]),
        ("y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, axes)", "2, 4, 3, 3", ["ReverseSequence"]),
        ("y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, ends)", "2, 4, 3, 3", ["Gather"]),
        ("y = Trilu(x)", "2, 4, 3, 3", ["Where"]),
        ("y = Trilu<upper = 0>(x, last)", "2, 4, 3, 3", ["Where"]),
        ("y = MatMul(mix, x)", "2, 4, 5, 3", [*TURNED]),
        ("y = CumSum(x, last)", "2, 4, 3, 3", ["MatMul"]),
        (
            "y = CumSum<reverse = 1, exclusive = 1>(x, first)",
            "2, 4, 3, 3",
            [*TURNED],
        ),
        (f"y = AveragePool<{LARGE}, ceil_mode = 1, count_include_pad = 1>(x)", "2, 4, 1, 1", [POOLED]),
        (f"y = AveragePool<{LARGE}, pads = [1, 1, 1, 1]>(x)", "2, 4, 1, 1", ["AveragePool"]),
        ("y = AveragePool<kernel_shape = [2, 3]>(x)", "2, 4, 2, 1", ["AveragePool"]),
        ("y = LayerNormalization<axis = 1>(x, new_1, new_1)", "2, 4, 3, 3", [*FLAT]),
        ("y = LayerNormalization<axis = 2>(x, row_1)", "2, 4, 3, 3", [*FLAT]),
        ("y = LayerNormalization<axis = 2>(x, new_1)", "2, 4, 3, 3", ["LayerNormalization"]),
        ("y = LayerNormalization<axis = -1>(x, ones_1)", "2, 4, 3, 3", ["LayerNormalization"]),
        ("y = ScatterND(x, row, new)", "2, 4, 3, 3", ["Slice", "Slice", "Concat"]),
        ("y = ScatterND(x, rows, new)", "2, 4, 3, 3", ["Reshape", "Slice", *["Slice", "Concat"] * 2]),
        ("y = ScatterND(x, turned, new)", "2, 4, 3, 3", ["ScatterND"]),
        ("y = ScatterND <reduction = 'add'> (x, row, new)".replace("'", '"'), "2, 4, 3, 3", ["ScatterND"]),
        ("y = BatchNormalization(x, ones, ones, ones, ones)", "2, 4, 3, 3", ["Conv"]),
    ],
)
def test_one_op(body: str, shape: str, expected: list[str]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[2, 4, 3, 3] x) => (float[{shape}] y) <
        float three = {{3}}, float third = {{0.333333}}, int64[2] axes = {{2, 3}}, int64[2] ends = {{2, 2}},
        int64[2, 1, 2] row = {{0, 1, 1, 1}}, int64[2, 1, 2] turned = {{1, 1, 0, 1}}, float[2, 1, 3, 3] new,
        float[4, 3, 3] new_1, float[1, 1, 1, 3] row_1 = {{1, 2, 3}}, float[5, 3] mix,
        float[3] ones_1 = {{1, 2, 3}},
        int64 last = {{-1}}, int64[1] last_axis = {{-1}}, int64 first = {{1}},
        int64[2, 1, 2] rows = {{0, 0, 0, 1}},
        int64[2, 2] all = {{0, 1, 2, 3}}, int64[2, 1] some = {{0, 2}}, float[4] ones = {{1, 1, 1, 1}}
    > {{ {body} }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == expected
    agree(made, model, 1e-4)


def test_a_root_mean_square_over_several_axes_is_one_over_the_last() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 23]>
    g (float[2, 4, 3] x) => (float[2, 4, 3] y) <float[3] scale> {
        y = RMSNormalization<axis = 1, epsilon = 0.01>(x, scale)
    }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Reshape", "RMSNormalization", "Reshape"]
    agree(made, model)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [(2, ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]), (4, ["InstanceNormalization"])],
)
def test_a_group_norm_is_one_of_instances_with_a_scale_behind_it(groups: int, expected: list[str]) -> None:
    """PyTorch's newer exporter writes it as one op, which the HTP has not.

    Of groups of one channel, as the first layer of wav2vec 2.0 has them, the scale is that of the instances:
    behind these it is their own to the HTP, which knows them only in one.
    """
    model = parse(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y) <float[4] scale, float[4] bias> {{
        y = GroupNormalization<num_groups = {groups}, epsilon = 0.01>(x, scale, bias)
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == expected
    agree(made, model, 1e-4)


def test_a_tanh_that_a_mish_becomes_is_looked_at_as_well() -> None:
    """Of 16 places the HTP computes other numbers in 16 bits."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[1, 4, 16] x) => (float[1, 4, 16] y) { y = Mish(x) }""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Softplus", "Reshape", "Tanh", "Reshape", "Mul"]
    agree(made, model)


# -- convolutions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pads", [(0, 0), (8192, 3), (3, 16384)])
@pytest.mark.parametrize(("channels", "groups", "dilation"), [(1, 1, 8192), (33, 3, 4000)])
def test_a_wide_window_becomes_one_of_neighbours(
    pads: tuple[int, int], channels: int, groups: int, dilation: int
) -> None:
    length = 3 * dilation + 5
    wanted = length + sum(pads) - 2 * dilation
    model = parse(
        f"""g (float[2, {channels}, {length}] x) => (float[2, 6, {wanted}] y)
        <float[6, {channels // groups}, 3] w, float[6] b> {{
            y = Conv<dilations = [{dilation}], pads = [{pads[0]}, {pads[1]}], group = {groups}>(x, w, b)
        }}"""
    )
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    (conv,) = [node for node in made.graph.node if node.op_type == "Conv"]
    assert not [one for one in conv.attribute if one.name == "dilations"]
    agree(made, model)


@pytest.mark.parametrize("attributes", ["dilations = [6000]", "dilations = [9000], strides = [2]"])
def test_other_convolutions_stay(attributes: str) -> None:
    model = parse(
        f"""g (float[1, 1, 20000] x) => (float[1, 1, n] y) <float[1, 1, 3] w>
        {{ y = Conv<{attributes}>(x, w) }}"""
    )
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Conv"]


def test_a_weight_that_a_caller_may_feed_stays() -> None:
    model = parse(
        """g (float[1, 1, 20000] x, float[1, 1, 3] w) => (float[1, 1, 1616] y)
        { y = Conv<dilations = [9192]>(x, w) }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 3), np.float32), "w"))
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert types(made) == ["Conv"] and [info.name for info in made.graph.input] == ["x", "w"]


@pytest.mark.parametrize(("batch", "advice"), [(1, "--fix-input n=6 says so"), (2, "export it without them")])
def test_lengths_of_sequences_that_are_data_ask_for_a_value(batch: int, advice: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[6, {batch}, 8] x, int32[{batch}] n) => (float[1, {batch}, 4] y)
    <float[1, 12, 8] w, float[1, 12, 4] r> {{ s, y = GRU <hidden_size = 4> (x, w, r, , n) }}""")
    compiled = qc.compile(model, "decompose-ops", target="qnn-htp")
    (note,) = (note for note in compiled.notes if "lengths of its sequences" in note)
    assert "'n', are data: where all samples have all steps" in note and note.endswith(advice)
    if batch == 1:
        made = qc.compile(model, "fold-constants,decompose-ops", target="qnn-htp", fix_inputs=("n=6",)).model
        assert "GRU" not in types(made)


@pytest.mark.parametrize(
    ("given", "read", "attributes", "fits"),
    [
        ("float[B, L, 4] c, float[B, L, 4] s", "x, c, s", "", True),
        ("float[9, 4] c, float[9, 4] s, int64[B, L] p", "x, c, s, p", "", True),
        ("float[B, L, 3] c, float[B, L, 3] s", "x, c, s", "<rotary_embedding_dim = 6>", True),
        ("float[B, L, 4] c, float[B, L, 4] s", "x, c, s", "<interleaved = 1>", False),
    ],
)
def test_a_rotary_embedding_is_products_on_the_htp(
    given: str, read: str, attributes: str, fits: bool
) -> None:
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[B, 2, L, 8] x, {given}) => (float[B, 2, L, 8] y) {{
        y = RotaryEmbedding {attributes} ({read})
    }}""")
    made = qc.compile(model, "decompose-ops", target="qnn-htp").model
    assert ("RotaryEmbedding" not in types(made)) == fits
    sizes, random = {"B": 2, "L": 3}, np.random.default_rng(0)
    feed = {}
    for value in model.graph.input:
        lengths = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        numbers = random.normal(size=lengths).astype(np.float32)
        feed[value.name] = random.integers(0, 9, lengths) if value.name == "p" else numbers
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "fits"), [("nhwpqc->nchpwq", True), ("abcdef->ab", False), ("aabcde->abcde", False)]
)
def test_an_einsum_that_only_moves_is_a_transpose(equation: str, fits: bool) -> None:
    """As diffusion transformers put their pixels together."""
    term, result = equation.split("->")
    sizes = dict(zip("nhwpqcabdef", (1, 4, 4, 2, 2, 3, 2, 2, 2, 2, 2), strict=True))
    shapes = [", ".join(str(sizes[axis]) for axis in part) for part in (term, result)]
    model = parse(f"""g (float[{shapes[0]}] x) => (float[{shapes[1]}] y) {{
        y = Einsum<equation = "{equation}">(x) }}""")
    made = qc.compile(model, "decompose-ops", target="openvino", allow_unquantized=True).model
    assert types(made) == (["Transpose"] if fits else ["Einsum"])
    agree(made, model)
