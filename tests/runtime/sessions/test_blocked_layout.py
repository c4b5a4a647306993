"""The blocked layout reaches over qc's ops without changing a single bit."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qc.ir.executor import Observation
from qc.runtime import OrtExecutor, TensorStatistics, open_session
from qc.runtime.native.library import library_path
from qc.runtime.sessions import open as session_module
from qc.runtime.sessions.blocked_layout import keep_blocked


class Net:
    """Builds a convolution net with a FakeQuantize behind whatever is asked for."""

    def __init__(self, channels: int, size: int = 8) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.random = np.random.default_rng(0)
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])
        for name, array in (("s", np.float32(0.05)), ("z", np.int32(3)), ("l", np.array([0, 255], np.int32))):
            self.constants.append(numpy_helper.from_array(np.asarray(array), name))

    def op(self, op_type: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def conv(self, x: str, given: int, made: int, kernel: int = 1, stride: int = 1, pad: int = 0) -> str:
        weight = self.random.normal(0, 0.3, (made, given, kernel, kernel)).astype(np.float32)
        self.constants.append(numpy_helper.from_array(weight, f"w{len(self.nodes)}"))
        return self.op(
            "Conv",
            x,
            self.constants[-1].name,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
        )

    def round(self, x: str) -> str:
        return self.op("FakeQuantize", x, "s", "z", "l", domain="qc", granularity="tensor")

    def model(self, *outputs: str) -> ModelProto:
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [self.input], infos, self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qc", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def residual(channels: int = 16) -> ModelProto:
    net = Net(channels)
    x = net.round(net.conv("x", channels, channels, 3, 1, 1))
    y = net.round(net.op("Relu", net.conv(x, channels, channels, 3, 1, 1)))
    y = net.round(net.op("Add", x, y))
    return net.model(net.conv(y, channels, channels))


def downsampled() -> ModelProto:
    net = Net(16, 9)
    x = net.round(net.conv("x", 16, 16, 3, 1, 1))
    main = net.round(net.conv(x, 16, 32, 3, 2, 1))
    side = net.round(net.conv(x, 16, 32, 1, 2, 0))
    return net.model(net.conv(net.round(net.op("Add", main, side)), 32, 16))


def squeeze_and_excite() -> ModelProto:
    net = Net(16)
    x = net.round(net.conv("x", 16, 16, 3, 1, 1))
    gate = net.op("Sigmoid", net.conv(net.round(net.op("GlobalAveragePool", x)), 16, 16))
    return net.model(net.conv(net.round(net.op("Mul", x, net.round(gate))), 16, 16))


def exposed() -> ModelProto:
    net = Net(16)
    x = net.round(net.conv("x", 16, 16, 3, 1, 1))
    return net.model(x, net.conv(x, 16, 16))


def optimized(model: ModelProto, folder: Path) -> ModelProto:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.register_custom_ops_library(str(library_path()))
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx")


def kinds(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def run(model: ModelProto) -> list[np.ndarray]:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    return open_session(model, threads=1).run(None, feed)


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "keep_blocked", lambda _: None)


@pytest.mark.parametrize(
    "build",
    [residual, functools.partial(residual, 24), downsampled, squeeze_and_excite, exposed],
    ids=["residual", "odd", "downsampled", "squeeze-and-excite", "exposed"],
)
def test_results_are_the_same_bit_for_bit(build, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = run(build())
    plain(monkeypatch)
    for ours, theirs in zip(blocked, run(build()), strict=True):
        assert np.array_equal(ours, theirs)


def test_conversions_between_convolutions_are_gone(tmp_path: Path) -> None:
    before = optimized(residual(), tmp_path)
    if not any(node.op_type == "ReorderOutput" for node in before.graph.node):
        pytest.skip("ONNX Runtime has no blocked layout on this processor")
    kept = keep_blocked(optimized(residual(), tmp_path))
    assert kept is not None
    assert kinds(before)["ReorderOutput"] >= 2 and kinds(before)["ReorderInput"] >= 2
    assert kinds(kept)["ReorderOutput"] == 1 and kinds(kept)["ReorderInput"] <= 1


def test_only_tensors_of_provably_equal_shape_are_added(tmp_path: Path) -> None:
    kept = keep_blocked(optimized(downsampled(), tmp_path))
    if kept is None:
        pytest.skip("ONNX Runtime has no blocked layout on this processor")
    assert (
        kinds(kept)["ReorderOutput"] == 1
    )  # 3x3 with stride 2 and pad 1 gives the size of 1x1 with stride 2
    kept = keep_blocked(optimized(squeeze_and_excite(), tmp_path))
    assert kept is not None
    mul = next(node for node in kept.graph.node if node.op_type == "Mul")
    plain_sides = {node.output[0] for node in kept.graph.node if node.op_type == "ReorderOutput"}
    assert plain_sides.issuperset(mul.input)


def test_nothing_to_move(tmp_path: Path) -> None:
    net = Net(16)
    model = net.model(net.round("x"))
    assert keep_blocked(optimized(model, tmp_path)) is None


@given(channels=st.integers(1, 40), histogram=st.booleans())
@settings(max_examples=12, deadline=None)
def test_statistics_are_exact_whatever_the_channels(channels: int, histogram: bool) -> None:
    net = Net(3)
    x = net.op("Relu", net.conv("x", 3, channels, 3, 1, 1))
    model = net.model(net.conv(x, channels, 8))
    feed = {"x": np.random.default_rng(2).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    executor, request = OrtExecutor(threads=1), Observation("histogram" if histogram else "range")
    (found,) = executor.run(model, [feed], [x])
    seen, expected = (
        executor.observe(model, {x: [request]}, [feed])[x, request],
        TensorStatistics.from_array(found[x], request),
    )
    assert (seen.minimum, seen.maximum, seen.count) == (expected.minimum, expected.maximum, expected.count)
    if histogram:
        for ours, theirs in zip(seen.histogram(), expected.histogram(), strict=True):
            assert np.array_equal(ours, theirs)
