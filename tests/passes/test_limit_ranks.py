"""Tensors of more dimensions than a device has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
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


VOLUME = (1, 4, 6, 8, 16)


def of_one_op(
    op_type: str, *constants: np.ndarray, shape: tuple[int, ...] = VOLUME, **attributes: object
) -> onnx.ModelProto:
    """A model of one op, with constants behind its data."""
    names = [f"c{index}" for index in range(len(constants))]
    made = ["y", "z"] if op_type == "Split" else ["y"]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], made, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in made],
        [numpy_helper.from_array(array, name) for array, name in zip(constants, names, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (of_one_op("Tanh"), 4),
        (of_one_op("Elu", alpha=0.5), 4),
        (of_one_op("LayerNormalization", random(16), random(16), epsilon=1e-5), 4),
        (of_one_op("LogSoftmax", axis=4), 4),
        (of_one_op("LpNormalization", axis=-1, p=2), 4),
        (of_one_op("MatMul", random(16, 3)), 4),
        (of_one_op("Split", np.array([8, 8]), axis=-1), 3),
        (of_one_op("MaxPool", kernel_shape=[3, 2, 3], strides=[2, 1, 2], pads=[1, 0, 1, 0, 1, 1]), 4),
        (
            of_one_op("MaxPool", kernel_shape=[2, 2, 2], dilations=[2, 1, 3], ceil_mode=1, strides=[2, 2, 1]),
            4,
        ),
    ],
    ids=lambda given: given.graph.node[0].op_type if isinstance(given, onnx.ModelProto) else "",
)
def test_an_op_has_the_dimensions_that_the_target_runs_it_in(model: onnx.ModelProto, most: int) -> None:
    made = qc.compile(model, "limit-ranks", target="qnn-htp").model
    feed = {"x": random(*VOLUME)}
    expected, found = run_model(model, feed), run_model(made, feed)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    known = onnx.shape_inference.infer_shapes(made).graph
    lengths = {one.name: len(one.type.tensor_type.shape.dim) for one in (*known.value_info, *known.output)}
    others = [node for node in made.graph.node if node.op_type != "Reshape"]
    assert {node.op_type for node in others} == {model.graph.node[0].op_type}
    assert all(lengths[name] <= most for node in others for name in node.output)


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        (of_one_op("LayerNormalization", random(8, 16), axis=-2), True),  # of two axes
        (of_one_op("LpNormalization", axis=1, p=2), True),
        (of_one_op("MaxPool", kernel_shape=[2, 2, 2], auto_pad="SAME_UPPER"), True),
        (of_one_op("MatMul", random(4, 1, 16, 3)), False),  # a product of many matrices is run so
        (of_one_op("Sigmoid"), False),
    ],
)
def test_what_cannot_have_fewer_is_told_and_stays(model: onnx.ModelProto, is_told: bool) -> None:
    made, _, _ = apply("limit-ranks", model, target="qnn-htp")
    assert [op.op_type for op in made.graph.ops()] == [model.graph.node[0].op_type]
    told = ["it has 5 dimensions, and the target runs it in no more than 4"] if is_told else []
    assert [remark.reason for remark in made.journal.remarks] == told
