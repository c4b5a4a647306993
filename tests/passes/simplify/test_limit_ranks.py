"""Tensors of more dimensions than a device has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from support.models import parse
from support.pipelines import apply, run_model

import qc
from qc.passes.simplify.decompositions.movement import merged

MOST = 5


@given(st.data())
def test_fewer_dimensions_move_all_numbers_alike(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=7)))
    order = tuple(data.draw(st.permutations(range(len(lengths)))))
    shape, small = merged(lengths, order)
    array = np.arange(np.prod(lengths)).reshape(lengths)
    assert 1 not in shape or shape == (1,)
    np.testing.assert_array_equal(
        array.transpose(order).ravel(), array.reshape(shape).transpose(small).ravel()
    )


@given(st.data())
def test_no_tensor_has_more_dimensions_between_two_of_few(data: st.DataObject) -> None:
    lengths = tuple(data.draw(st.lists(st.integers(1, 3), min_size=6, max_size=7)))
    order = tuple(data.draw(st.permutations(range(len(lengths)))))
    flat = int(np.prod(lengths))
    nodes = [
        helper.make_node("Reshape", ["x", "many"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=order),
        helper.make_node("Reshape", ["b", "one"], ["y"]),
    ]
    constants = {"many": lengths, "one": (flat,)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (flat,))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (flat,))],
        [numpy_helper.from_array(np.array(array, np.int64), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = qc.compile(model, "limit-ranks", target="qnn-htp").model
    feed = {"x": np.arange(flat, dtype=np.float32)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
    if len(merged(lengths, order)[0]) <= MOST:
        known = onnx.shape_inference.infer_shapes(made).graph.value_info
        assert all(len(value.type.tensor_type.shape.dim) <= MOST for value in known)


VOLUME = (2, 4, 6, 8, 16)
FLOAT = onnx.TensorProto.FLOAT


def of_one_op(
    op_type: str,
    *constants: np.ndarray,
    shape: tuple[int, ...] = VOLUME,
    opset: int = 20,
    results: tuple[str, ...] = ("y",),
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one op, with constants behind its data."""
    names = [f"c{index}" for index in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], results, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in results if name in ("y", "z")],
        [
            numpy_helper.from_array(np.asarray(array), name)
            for array, name in zip(constants, names, strict=True)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def limited(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as the HTP runs it, which computes what it did."""
    made = qc.compile(model, "limit-ranks", target="qnn-htp").model
    (x,) = model.graph.input
    feed = {"x": np.abs(random(*(one.dim_value for one in x.type.tensor_type.shape.dim)))}
    expected, found = run_model(model, feed), run_model(made, feed)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    return made


EACH_NUMBER = [
    "Ceil",
    "Cos",
    "Elu",
    "Floor",
    "Gelu",
    "HardSwish",
    "Log",
    "Neg",
    "Round",
    "Sign",
    "Sin",
    "Softplus",
    "Sqrt",
    "Tanh",
]
OFFSETS = (1, 5, 4, 3, 4, 2)  # of deformable attention: queries, heads, levels, points and coordinates
POOL = {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2]}
NORMALIZED = (random(16), random(16))


@pytest.mark.parametrize(
    ("model", "most"),
    [
        *((of_one_op(op_type), 4) for op_type in EACH_NUMBER),
        (of_one_op("Elu", alpha=0.5), 4),
        (of_one_op("Relu", shape=(2, *VOLUME)), 5),
        (of_one_op("Clip", np.float32(0.1), np.float32(0.5), shape=(2, *VOLUME)), 5),
        (of_one_op("Gelu", approximate="tanh"), 4),
        (of_one_op("LayerNormalization", *NORMALIZED, epsilon=1e-5), 4),
        (of_one_op("LayerNormalization", *NORMALIZED, results=("y", "mean")), 4),  # which nobody reads
        (of_one_op("LayerNormalization", *NORMALIZED, results=("y", "", "deviation")), 4),
        (of_one_op("LogSoftmax", axis=4), 4),
        (of_one_op("LogSoftmax"), 4),
        (of_one_op("LogSoftmax", opset=11, axis=4), 4),
        (of_one_op("LogSoftmax", axis=1), 4),
        (of_one_op("Softmax", shape=OFFSETS), 5),
        (of_one_op("Softmax", axis=2, shape=OFFSETS), 5),  # as RAFT weighs the neighbours of a flow
        (of_one_op("LpNormalization", axis=-1, p=2), 4),
        (of_one_op("MatMul", random(16, 3)), 4),
        (of_one_op("Split", np.array([8, 8]), axis=-1, results=("y", "z")), 3),
        (of_one_op("Split", np.array([8, 8]), axis=-1, results=("y", "unread")), 3),
        (of_one_op("Add", random(1, 1, 4, 1, 4, 2), shape=OFFSETS), 4),
        (of_one_op("Div", np.float32(3), shape=OFFSETS), 5),
        (of_one_op("Pow", random(4, 2), shape=OFFSETS), 5),
        (of_one_op("Slice", *map(np.array, ([1], [2], [-1])), shape=OFFSETS), 5),
        (of_one_op("Slice", *map(np.array, ([3, 3], [0, -9], [2, 4], [-1, -2])), shape=OFFSETS), 5),
        (of_one_op("Concat", random(*OFFSETS), axis=3, shape=OFFSETS), 5),
        (of_one_op("ReduceMax", np.array([2, -3]), keepdims=0, shape=OFFSETS), 5),
        (of_one_op("ReduceSum", np.array([1, 3]), shape=OFFSETS, opset=13), 5),
        (of_one_op("ReduceMean", axes=[1, 2], shape=OFFSETS, opset=17), 5),
        (of_one_op("ReduceMean", shape=OFFSETS, opset=18), 5),  # along all axes, which it need not name
        (of_one_op("ReduceSum", shape=OFFSETS, opset=13), 5),
        (of_one_op("ReduceMax", shape=OFFSETS, opset=17), 5),
        (of_one_op("Tile", np.array([1, 1, 1, 2, 1, 1]), shape=OFFSETS), 5),
        (of_one_op("Expand", np.array([6, 5, 4, 3, 4, 2]), shape=OFFSETS), 5),
        (of_one_op("GlobalMaxPool"), 4),
        (of_one_op("InstanceNormalization", random(4), random(4)), 4),
        (of_one_op("MaxPool", **POOL, pads=[1, 0, 1, 0, 1, 1]), 4),
        (of_one_op("MaxPool", **POOL, auto_pad="SAME_UPPER"), 4),
        (of_one_op("MaxPool", **POOL, auto_pad="VALID"), 4),
        (of_one_op("MaxPool", **POOL, results=("y", "indices")), 4),  # which nobody reads
        (
            of_one_op("MaxPool", kernel_shape=[2, 2, 2], dilations=[2, 1, 3], ceil_mode=1, strides=[2, 2, 1]),
            4,
        ),
    ],
    ids=lambda given: given.graph.node[0].op_type if isinstance(given, onnx.ModelProto) else "",
)
def test_an_op_has_the_dimensions_that_the_target_runs_it_in(model: onnx.ModelProto, most: int) -> None:
    made = limited(model)
    known = onnx.shape_inference.infer_shapes(made).graph
    lengths = {one.name: len(one.type.tensor_type.shape.dim) for one in (*known.value_info, *known.output)}
    others = [node for node in made.graph.node if node.op_type != "Reshape"]
    assert {node.op_type for node in others} == {model.graph.node[0].op_type}
    assert all(lengths.get(node.output[0], 0) <= most for node in others)


def test_parts_of_several_lengths_are_slices() -> None:
    made = limited(of_one_op("Split", np.array([5, 11]), axis=-1, results=("y", "z")))
    assert {node.op_type for node in made.graph.node} == {"Reshape", "Slice"}


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        (of_one_op("LayerNormalization", random(8, 16), axis=-2), True),  # of two axes
        (of_one_op("LayerNormalization", *NORMALIZED, results=("y", "z")), True),  # whose mean is read
        (of_one_op("LpNormalization", axis=1, p=2), True),
        (of_one_op("LogSoftmax", opset=11), True),  # of all dimensions from the second one on
        (of_one_op("MaxPool", kernel_shape=[3, 3, 3], strides=[4, 4, 4], pads=[1] * 6, ceil_mode=1), True),
        (of_one_op("Tanh", shape=(2, 0, 3, 4, 5)), True),
        (of_one_op("MatMul", random(2, 2, 2, 2, 7, 8), shape=(2, 2, 2, 2, 6, 7)), True),
        (of_one_op("MatMul", random(4, 1, 16, 3)), False),  # a product of many matrices is run so
        (of_one_op("MatMul", random(16)), False),
        (of_one_op("Softmax", axis=1), False),
        (of_one_op("Sigmoid"), False),
    ],
)
def test_what_cannot_have_fewer_is_told_and_stays(model: onnx.ModelProto, is_told: bool) -> None:
    limited(model)
    made, context, _ = apply("limit-ranks", model, target="qnn-htp")
    assert [op.op_type for op in made.graph.ops()] == [model.graph.node[0].op_type]
    assert any("does not run ops in so many dimensions" in note for note in context.notes) == is_told
    assert len(made.journal.remarks) == is_told


@pytest.mark.parametrize("positions", [(5, 6), (4, 5, 6)])
@pytest.mark.parametrize("op_type", ["LeakyRelu", "PRelu"])
def test_a_slope_in_volumes_is_a_product(op_type: str, positions: tuple[int, ...]) -> None:
    """The networks of nnU-Net join such volumes: -10 dB for 37 on the HTP; a PRelu ended its compiler."""
    slopes = np.float32([0.25, -0.5, 1]).reshape(3, *(1 for _ in positions))
    model = of_one_op(op_type, *([slopes] if op_type == "PRelu" else []), shape=(2, 3, *positions))
    made = qc.compile(model, "limit-ranks", target="qnn-htp").model
    assert [node.op_type for node in made.graph.node] == (["Mul", "Max"] if len(positions) > 2 else [op_type])
    feed = {"x": random(2, 3, *positions)}
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-6)


def test_a_matrix_of_unknown_shape_may_be_several() -> None:
    model = of_one_op("MatMul", random(16, 3))
    del model.graph.initializer[:]
    model.graph.input.append(helper.make_tensor_value_info("c0", FLOAT, None))
    made, _, _ = apply("limit-ranks", model, target="qnn-htp")
    assert [op.op_type for op in made.graph.ops()] == ["MatMul"]


def test_axes_without_order_go_to_their_places_one_by_one() -> None:
    """Hiera takes tokens apart twice, so that no two axes stay side by side."""
    model = of_one_op("Transpose", perm=[0, 2, 4, 6, 1, 3, 5], shape=(2, 3, 2, 3, 2, 3, 2))
    made = limited(model)
    assert {len(one.dims) for one in made.graph.initializer if one.name != "many"} == {1}
    known = onnx.shape_inference.infer_shapes(made, data_prop=True).graph.value_info
    assert max(len(value.type.tensor_type.shape.dim) for value in known) <= MOST


def test_dimensions_are_counted_where_their_limit_is() -> None:
    """The HTP runs an Unsqueeze of so many dimensions, which makes one more."""
    model = parse(
        "g (float[N, 2, 3, 4] x) => (float[N, 2, 3, 4, 1] y) <int64[1] a = {-1}> { y = Unsqueeze(x, a) }"
    )
    context = apply("limit-ranks", model, target="qnn-htp")[1]
    assert any("(4, at most 3)" in note for note in context.notes)
