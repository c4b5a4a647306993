"""Tensors of more dimensions than a device has."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from support.pipelines import run_model

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
