"""Moments and Gram matrices from inside the runtime are those of the tensors."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from qc.ir.errors import UsageError
from qc.ir.executor import Observation
from qc.runtime import OrtExecutor, TensorStatistics

FIXTURES = Path(__file__).parents[1] / "fixtures"
SINGLE = OrtExecutor(threads=1)


@pytest.fixture(scope="module")
def digits() -> ModelProto:
    return onnx.load(FIXTURES / "digits_cnn.onnx")


@pytest.mark.parametrize(
    ("tensor", "request_"),
    [
        ("relu_1", Observation(moments=True)),
        ("relu_1", Observation(axis=1, moments=True, histogram=True)),
        ("conv_2", Observation(axis=1, gram=True)),
        ("image", Observation(axis=3, gram=True)),
        ("flatten_1", Observation(axis=1, gram=True)),
        ("flatten_1", Observation(axis=0, moments=True)),
    ],
)
def test_they_are_those_of_the_tensors(digits: ModelProto, tensor: str, request_: Observation) -> None:
    with np.load(FIXTURES / "digits_calibration.npz") as archive:
        feeds = [{"image": image[np.newaxis]} for image in archive["image"][:5]]
    arrays = [run[tensor] for run in SINGLE.run(digits, feeds, [tensor])]
    found = SINGLE.observe(digits, {tensor: request_}, feeds)[tensor]
    parts = [TensorStatistics.from_array(array, request_) for array in arrays]
    expected = reduce(TensorStatistics.merge, parts)
    np.testing.assert_allclose(found.mean(), expected.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.second_moment(), expected.second_moment(), rtol=1e-12, atol=1e-12)
    axis = request_.axis
    rows = np.stack([np.ravel(array) for array in arrays]).reshape(1, -1).astype(np.float64)
    if axis is not None:
        rows = np.concatenate([np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in arrays], 1)
        rows = rows.astype(np.float64)
    products = rows @ rows.T / rows.shape[1]
    products = products if request_.gram else np.diag(products)
    np.testing.assert_allclose(found.mean(), rows.mean(1).reshape(found.mean().shape), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        found.second_moment(), products.reshape(found.second_moment().shape), rtol=1e-9, atol=1e-9
    )


def test_what_is_not_finite_counts_as_zero() -> None:
    graph = helper.make_graph(
        [helper.make_node("Sqrt", ["x"], ["y"])],
        "roots",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    feed = {"x": np.array([[4, -1], [9, 16]], np.float32)}
    executor = OrtExecutor(threads=1, allow_nonfinite=True)
    found = executor.observe(model, {"y": Observation(axis=0, gram=True)}, [feed])["y"]
    assert found.mean().tolist() == [1, 3.5]
    assert found.second_moment().tolist() == [[2, 3], [3, 12.5]]


def test_average_ranges_leave_out_feeds_without_a_value() -> None:
    parts = [np.array([-1.0, 3.0]), np.zeros(0), np.array([-2.0, 8.0])]
    merged = reduce(TensorStatistics.merge, [TensorStatistics.from_array(part) for part in parts])
    low, high = merged.average_range()
    assert (float(low), float(high)) == (-1.5, 5.5) and merged.feeds == 2
    low, high = TensorStatistics.from_array(np.zeros(0)).average_range()
    assert (float(low), float(high)) == (np.inf, -np.inf)


def test_they_have_to_be_asked_for() -> None:
    statistics = TensorStatistics.from_array(np.ones(3))
    for ask in (statistics.mean, statistics.second_moment):
        with pytest.raises(UsageError, match="no moments were collected"):
            ask()
    with pytest.raises(UsageError, match="give their axis"):
        Observation(gram=True)
