"""Moments and Gram matrices from inside the runtime are those of the tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.folders import FIXTURES

from qc.ir.errors import ModelError, UsageError
from qc.ir.executor import Observation, Patches
from qc.runtime import OrtExecutor, TensorStatistics
from qc.runtime.native import kernels

SINGLE = OrtExecutor(threads=1)


@pytest.fixture(scope="module")
def digits() -> ModelProto:
    return onnx.load(FIXTURES / "digits_cnn.onnx")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"kernel": (3, 3), "strides": (1,)}, "of no convolution"),
        ({"kernel": (3, 3), "pads": (1, 1)}, "of no convolution"),
        ({"kernel": (3, 0)}, "of no convolution"),
        ({"kernel": ()}, "of no convolution"),
        ({"kernel": (3, 3), "group": 0}, "of no convolution"),
        ({"kernel": (3, 3), "auto_pad": "SAME"}, "auto_pad is one of NOTSET, .*, not 'SAME'"),
    ],
)
def test_patches_of_no_convolution_are_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Patches(**numbers)


def test_what_is_no_observation_is_refused() -> None:
    kind: Any = "grm"
    with pytest.raises(UsageError, match="one of range, histogram, moments, gram, not 'grm'"):
        Observation(kind, axis=1)
    with pytest.raises(UsageError, match="counted from 0, not -1"):
        Observation("gram", axis=-1)


@pytest.mark.parametrize(
    ("tensor", "observation"),
    [
        ("relu_1", Observation("moments")),
        ("relu_1", Observation("moments", axis=1)),
        ("conv_2", Observation("gram", axis=1)),
        ("image", Observation("gram", axis=3)),
        ("flatten_1", Observation("gram", axis=1)),
        ("flatten_1", Observation("moments", axis=0)),
    ],
)
def test_they_are_those_of_the_tensors(digits: ModelProto, tensor: str, observation: Observation) -> None:
    with np.load(FIXTURES / "digits_calibration.npz") as archive:
        feeds = [{"image": image[np.newaxis]} for image in archive["image"][:5]]
    arrays = [run[tensor] for run in SINGLE.run(digits, feeds, [tensor])]
    found = SINGLE.observe(digits, {tensor: [observation]}, feeds)[tensor, observation]
    expected = reduce(TensorStatistics.merge, [TensorStatistics.from_array(a, observation) for a in arrays])
    np.testing.assert_allclose(found.mean(), expected.mean(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.second_moment(), expected.second_moment(), rtol=1e-12, atol=1e-12)
    axis = observation.axis
    rows = np.stack([np.ravel(array) for array in arrays]).reshape(1, -1).astype(np.float64)
    if axis is not None:
        rows = np.concatenate([np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in arrays], 1)
        rows = rows.astype(np.float64)
    products = rows @ rows.T / rows.shape[1]
    products = products if observation.kind == "gram" else np.diag(products)
    np.testing.assert_allclose(found.mean(), rows.mean(1).reshape(found.mean().shape), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        found.second_moment(), products.reshape(found.second_moment().shape), rtol=1e-9, atol=1e-9
    )


def single_op(op_type: str, shape: Sequence[int], element: int) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"])],
        "single",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def observed(
    x: np.ndarray, observation: Observation, threads: int = 1, op_type: str = "Identity"
) -> TensorStatistics:
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    executor = OrtExecutor(threads=threads, allow_nonfinite=True)
    found = executor.observe(single_op(op_type, x.shape, element), {"y": [observation]}, [{"x": x}])
    return found["y", observation]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], Patches]:
    """The shape of an input of a convolution, and what its kernel sees."""
    axes = draw(st.integers(1, 3))

    def lists(least: int, most: int, size: int = axes) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=size, max_size=size)))

    group, kernel, auto_pad = draw(st.integers(1, 3)), lists(1, 3), draw(st.sampled_from(AUTO_PADS))
    strides = lists(1, 2)
    dilations = () if auto_pad.startswith("SAME") else lists(1, 2)  # which ONNX Runtime refuses together
    pads = lists(0, 1, 2 * axes) if auto_pad == "NOTSET" else ()
    shape = (draw(st.integers(1, 2)), group * draw(st.integers(1, 2)), *lists(5, 7))
    return shape, Patches(kernel, strides, dilations, pads, group, auto_pad)


AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def patches_by_onnx_runtime(x: np.ndarray, patches: Patches) -> np.ndarray:
    """The patches of a tensor, float64 (group, position, feature): what a Conv of unit kernels picks out."""
    inside, features = x.shape[1] // patches.group, x.shape[1] // patches.group * math.prod(patches.kernel)
    units = np.eye(features, dtype=np.float32).reshape(features, inside, *patches.kernel)
    attributes = {name: value for name, value in asdict(patches).items() if name != "kernel" and value}
    node = helper.make_node("Conv", ["x", "units"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.tile(units, (patches.group, *[1] * (x.ndim - 1))), "units")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (result,) = SINGLE.run(model, [{"x": x}])
    rows = np.moveaxis(result["y"], 1, -1).reshape(-1, patches.group, features)
    return np.moveaxis(rows, 1, 0).astype(np.float64)


@given(convolutions(), st.integers(0, 9))
@settings(max_examples=settings.default.max_examples // 3)
def test_gram_matrices_of_patches(convolution: tuple[tuple[int, ...], Patches], seed: int) -> None:
    shape, patches = convolution
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    rows = patches_by_onnx_runtime(x, patches)
    found = observed(x, Observation("gram", patches=patches))
    assert found.minimum == x.min() and found.count == x.size
    np.testing.assert_allclose(found.mean(), rows.mean(1), atol=1e-12)
    expected = np.einsum("gpi,gpj->gij", rows, rows) / rows.shape[1]
    np.testing.assert_allclose(found.second_moment(), expected, atol=1e-12)


BIG = np.random.default_rng(1).normal(size=(3000, 150)).astype(np.float32)


@pytest.mark.parametrize(
    ("x", "observation"),
    [
        (BIG, Observation("gram", axis=1)),
        (BIG.reshape(5, 60, -1), Observation("gram", axis=1)),
        (BIG.astype(np.float16), Observation("gram", axis=1)),
        (
            BIG.reshape(10, 20, 50, 45),
            Observation("gram", patches=Patches((3, 3), pads=(1, 1, 1, 1), group=20)),
        ),
        (BIG.reshape(10, 20, 50, 45), Observation("moments", axis=1)),
        (BIG, Observation("moments", axis=1)),
        (BIG, Observation("moments")),
    ],
)
def test_neither_threads_nor_instruction_sets_change_a_bit(x: np.ndarray, observation: Observation) -> None:
    straight = observed(x, observation).to_arrays()
    best = kernels.instruction_sets()[0]
    try:
        for instruction_set in kernels.instruction_sets():
            kernels.use_instruction_set(instruction_set)
            for threads in (1, 2, 5):
                found = observed(x, observation, threads).to_arrays()
                assert all(np.array_equal(found[name], array) for name, array in straight.items())
    finally:
        kernels.use_instruction_set(best)


def test_a_window_that_does_not_fit_is_an_error() -> None:
    for patches in (Patches((3,)), Patches((3, 3), group=2)):
        with pytest.raises(ModelError, match="does not fit a tensor of shape"):
            observed(np.zeros((1, 3, 8, 8), np.float32), Observation("gram", patches=patches))


def test_a_tensor_can_be_asked_for_several_things_at_once(digits: ModelProto) -> None:
    with np.load(FIXTURES / "digits_calibration.npz") as archive:
        feeds = [{"image": image[np.newaxis]} for image in archive["image"][:5]]
    asked = [Observation(axis=1), Observation("histogram"), Observation("gram", axis=1)]
    asked.append(Observation("moments", axis=0))
    together = SINGLE.observe(digits, {"relu_1": set(asked)}, feeds)
    assert set(together) == {("relu_1", one) for one in asked}
    for one in asked:
        alone = SINGLE.observe(digits, {"relu_1": [one]}, feeds)["relu_1", one].to_arrays()
        found = together["relu_1", one].to_arrays()
        assert all(np.array_equal(found[name], array) for name, array in alone.items())


def test_what_is_not_finite_counts_as_zero() -> None:
    found = observed(np.array([[4, -1], [9, 16]], np.float32), Observation("gram", axis=0), op_type="Sqrt")
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
    with pytest.raises(UsageError, match="give their axis, or patches"):
        Observation("gram")
    with pytest.raises(UsageError, match="a histogram is of a whole tensor"):
        Observation("histogram", axis=1)
    with pytest.raises(UsageError, match="patches are the features of a Gram matrix"):
        Observation("moments", patches=Patches((3,)))
