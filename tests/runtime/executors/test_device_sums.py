"""Histograms that stay on the device; here it is the processor, or a GPU where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from support.folders import FIXTURES

import qc
from qc.ir.errors import DataError, ModelError
from qc.ir.executor import Observation, Requests, asked_of
from qc.runtime import OrtExecutor, add_observers, open_session
from qc.runtime.executors.device_sums import carry_histograms
from qc.runtime.executors.observer import Observer
from qc.runtime.sessions.providers import missing_for_cuda

PROVIDERS = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(bool(missing_for_cuda()), reason=missing_for_cuda())),
]
HISTOGRAM = Observation("histogram")
REQUESTS = {"x": [HISTOGRAM], "h": [Observation()], "y": [HISTOGRAM, Observation("moments")]}


def model() -> ModelProto:
    """y = Relu(-x), or 2 x in a branch that is taken if the sum of x is positive."""
    info = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph(
            [
                helper.make_node("Mul", ["h", "h"], [f"{name}.square"]),
                helper.make_node(op, [f"{name}.square"], [name]),
            ],
            name,
            [],
            [info(name, TensorProto.FLOAT, None)],
        )
        for name, op in (("then", "Sqrt"), ("else", "Neg"))
    }
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [], [0])
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Relu", ["n"], ["h"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["y"], then_branch=branches["then"], else_branch=branches["else"]
        ),
    ]
    graph = helper.make_graph(
        nodes, "model", [info("x", TensorProto.FLOAT, ["n"])], [info("y", TensorProto.FLOAT, None)], [zero]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(shift, 1, 1000).astype(np.float32)} for shift in (-1, 1, 0.5)]


def observer(provider: str, requests: Requests) -> Observer:
    observed, groups = add_observers(model(), asked_of(requests))
    carried = [group.names["histogram"] for group in groups if "histogram" in group.names]
    carry_histograms(observed, carried)
    session = open_session(observed, threads=1, provider=provider)
    return Observer(session, groups, asked_of(requests), strict=True, identify=False, carried=carried)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_statistics_are_those_that_are_added_up_here(provider: str) -> None:
    requests = REQUESTS | {"then.square": [HISTOGRAM]}  # in a body that does not always run
    expected = OrtExecutor(threads=1).observe(model(), requests, feeds())
    on_device = observer(provider, requests)
    on_device.add(0, feeds()[0])
    on_device.statistics()  # asking in between changes nothing
    for number, feed in enumerate(feeds()[1:], 1):
        on_device.add(number, feed)
    found = on_device.statistics()
    assert list(found) == list(expected)
    for name, statistics in expected.items():
        for field, array in statistics.to_arrays().items():
            assert np.array_equal(found[name].to_arrays()[field], array), (name, field)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_wrong_with_a_feed_is_said(provider: str) -> None:
    with pytest.raises(DataError, match="tensor 'x' holds 1 NaN or infinite values on feed 7"):
        observer(provider, REQUESTS).add(7, {"x": np.array([1, np.nan], np.float32)})
    with pytest.raises(ModelError, match="ONNX Runtime failed to run the model"):
        observer(provider, REQUESTS).add(0, {"x": np.ones((2, 2), np.float32)})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_two_compilations_give_the_same_bytes(provider: str) -> None:
    first, second = (
        qc.compile(FIXTURES / "digits_cnn.onnx", data=FIXTURES / "digits_calibration.npz", device=provider)
        for _ in range(2)
    )
    assert first.model.SerializeToString() == second.model.SerializeToString()


@pytest.mark.skipif(bool(missing_for_cuda()), reason=missing_for_cuda())
def test_calibration_on_a_gpu_equals_that_on_the_processor() -> None:
    """The model computes the same floats everywhere."""
    expected = OrtExecutor(threads=1).observe(model(), REQUESTS, feeds())
    found = OrtExecutor(provider="cuda").observe(model(), REQUESTS, feeds())
    for name, statistics in expected.items():
        for field, array in statistics.to_arrays().items():
            assert np.array_equal(found[name].to_arrays()[field], array), (name, field)
