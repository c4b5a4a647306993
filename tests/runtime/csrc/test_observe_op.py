"""The operator "Observe" inside ONNX Runtime sessions, on the CPU and on a GPU where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.operator_sessions import session_of

from qc.runtime.native import kernels

pytestmark = pytest.mark.usefixtures("implementation")
STATISTICS = ["minimum", "maximum", "count", "nonfinite", "histogram"]


def observer_session(
    shape: Any, histogram: int, element: int = TensorProto.FLOAT, axis: int = -1, threads: int = 1
) -> onnxruntime.InferenceSession:
    names = STATISTICS[: 5 if histogram else 4]
    node = helper.make_node("Observe", ["x"], names, domain="qc", axis=axis, histogram=histogram)
    types = {name: TensorProto.FLOAT if name in STATISTICS[:2] else TensorProto.INT64 for name in names}
    return session_of([node], {"x": (element, shape)}, types, threads=threads)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("histogram", [0, 1])
def test_observe_equals_the_kernel(histogram: int, axis: int, threads: int) -> None:
    x = np.random.default_rng(3).standard_normal((1501, 703)).astype(np.float32)
    x[3, 4], x[700, 5], x[1500, 6] = np.nan, np.inf, -np.inf
    seen = observer_session(["a", "b"], histogram, axis=axis, threads=threads).run(None, {"x": x})
    expected = kernels.observe(x, bool(histogram), None if axis == -1 else axis)
    assert seen[0].shape == seen[1].shape == ((1,) if axis == -1 else (x.shape[axis],))
    assert np.array_equal(seen[0].reshape(expected.minimum.shape), expected.minimum)
    assert np.array_equal(seen[1].reshape(expected.maximum.shape), expected.maximum)
    assert (seen[2].tolist(), seen[3].tolist()) == ([x.size - 3], [3])
    if expected.histogram is not None:
        assert np.array_equal(seen[4], expected.histogram)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 17, 255, 256, 300]), min_size=1, max_size=4).filter(
        lambda shape: np.prod(shape) < 1e5
    ),
    st.integers(-1, 3),
    st.integers(0, 2**32 - 1),
)
def test_observe_takes_every_shape_and_every_magnitude(shape: list[int], axis: int, seed: int) -> None:
    axis = min(axis, len(shape) - 1)
    # Any pattern of bits: all magnitudes, subnormal numbers, both zeros, infinities and NaN.
    x = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32).view(np.float32)
    x.ravel()[::5] = 0
    x.ravel()[1::11] = -0.0
    seen = observer_session(shape, 1, axis=axis).run(None, {"x": x})
    expected = kernels.observe(x, True, None if axis == -1 else axis)
    assert np.array_equal(seen[0].reshape(expected.minimum.shape), expected.minimum)
    assert np.array_equal(seen[1].reshape(expected.maximum.shape), expected.maximum)
    assert (seen[2].tolist(), seen[3].tolist()) == ([expected.count], [expected.nonfinite])
    assert np.array_equal(seen[4], expected.histogram)


def test_observe_takes_half_floats_scalars_and_empty_tensors() -> None:
    half = np.array([1.5, -2.25, np.nan], np.float16)
    seen = observer_session(["n"], 1, TensorProto.FLOAT16).run(None, {"x": half})
    assert [value.tolist() for value in seen[:4]] == [[-2.25], [1.5], [2], [1]]
    assert np.flatnonzero(seen[4]).tolist() == [0x3FC0, 0xC010]
    seen = observer_session([], 1).run(None, {"x": np.array(3, np.float32)})
    assert [value.tolist() for value in seen[:4]] == [[3], [3], [1], [0]]
    seen = observer_session(["n"], 1).run(None, {"x": np.zeros(0, np.float32)})
    assert [value.tolist() for value in seen[:4]] == [[np.inf], [-np.inf], [0], [0]]
    assert not seen[4].any()


def test_a_histogram_is_only_made_if_the_model_takes_it() -> None:
    node = helper.make_node("Observe", ["x"], STATISTICS[:4], domain="qc", histogram=1)
    types = {
        name: TensorProto.FLOAT if name in STATISTICS[:2] else TensorProto.INT64 for name in STATISTICS[:4]
    }
    session = session_of([node], {"x": (TensorProto.FLOAT, ["n"])}, types)
    assert session.run(["count"], {"x": np.ones(3, np.float32)})[0].tolist() == [3]


@pytest.mark.parametrize("shares_memory", [False, True])
def test_a_histogram_is_added_to_another(shares_memory: bool) -> None:
    node = helper.make_node("Observe", ["x", "before"], STATISTICS, domain="qc", histogram=1)
    types = {name: TensorProto.FLOAT if name in STATISTICS[:2] else TensorProto.INT64 for name in STATISTICS}
    inputs = {"x": (TensorProto.FLOAT, ["n"]), "before": (TensorProto.INT64, ["bins"])}
    session = session_of([node], inputs, types)
    x = np.random.default_rng(5).standard_normal(70_000).astype(np.float32)
    before = np.arange(65536)
    device = "cuda" if "CUDAExecutionProvider" in session.get_providers() else "cpu"
    value = onnxruntime.OrtValue.ortvalue_from_numpy(before.copy(), device, 0)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("before", value)
    for name in STATISTICS:
        binding.bind_output(name)
    if shares_memory:
        binding.bind_ortvalue_output("histogram", value)
    session.run_with_iobinding(binding)
    seen = [output.numpy() for output in binding.get_outputs()]
    expected = kernels.observe(x, True)
    assert expected.histogram is not None
    assert (seen[0].item(), seen[1].item(), seen[2].item()) == (x.min(), x.max(), x.size)
    assert np.array_equal(seen[4], before + expected.histogram)
    assert np.array_equal(value.numpy(), seen[4] if shares_memory else before)
    with pytest.raises(Exception, match=r"the histogram to add to has shape \(3,\) but needs \(65536,\)"):
        session.run(None, {"x": x, "before": before[:3]})


def test_many_observers_of_one_run_do_not_mix() -> None:
    nodes, types = [], {}
    for index in range(40):
        nodes.append(helper.make_node("Mul", ["x", f"factor{index}"], [f"x{index}"]))
        names = [f"{name}{index}" for name in STATISTICS[:4]]
        nodes.append(helper.make_node("Observe", [f"x{index}"], names, domain="qc"))
        types |= {names[0]: TensorProto.FLOAT, names[1]: TensorProto.FLOAT}
    factors = {f"factor{index}": np.array(index - 20, np.float32) for index in range(40)}
    session = session_of(nodes, {"x": (TensorProto.FLOAT, ["n"])}, types, factors)
    x = np.random.default_rng(6).standard_normal(60_000).astype(np.float32)
    for _ in range(3):
        seen = dict(zip(types, session.run(None, {"x": x}), strict=True))
        for index in range(40):
            scaled = x * factors[f"factor{index}"]
            assert seen[f"minimum{index}"].item() == scaled.min()
            assert seen[f"maximum{index}"].item() == scaled.max()


def test_a_wrong_axis_of_an_observer_is_an_error() -> None:
    with pytest.raises(Exception, match="axis is 1, outside"):
        observer_session(["n"], 0, axis=1).run(None, {"x": np.zeros(3, np.float32)})
