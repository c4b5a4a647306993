"""What numbers a tensor can hold, beside what ONNX Runtime computes."""

from __future__ import annotations

from math import inf

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

from qc.ir.facts.result_range import result_range
from qc.ir.onnx.lift import lift

_LIMITS = "float low = {-0.5}, float high = {3.0}, int64[1] axes = {1}, float[4] ones = {1.0, 1.0, 1.0, 1.0}"


def _model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]> g (float[2, 4] x, float[2, 4] z) => (float y) '
        f"<{_LIMITS}> {{ {body} }}"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity(x)", (-inf, inf)),
        ("y = Clip(x, low, high)", (-0.5, 3.0)),
        ("y = Clip(x, low)", (-0.5, inf)),
        ("y = Clip(x, high, low)", (-0.5, -0.5)),
        ("y = ThresholdedRelu<alpha = -3.0>(x)", (-inf, inf)),
        ("y = Clip(x, , high)", (-inf, 3.0)),
        ("s = Sigmoid(x) y = Transpose(s)", (0.0, 1.0)),
        ("t = Tanh(x) s = Sigmoid(z) y = Concat<axis = 0>(t, s)", (-1.0, 1.0)),
        ("t = Tanh(x) s = Sigmoid(z) y = Add(t, s)", (-1.0, 2.0)),
        ("t = Tanh(x) y = Add(t, ones)", (-inf, inf)),
        ("t = Relu(x) s = Sigmoid(z) y = Mul(t, s)", (0.0, inf)),
        ("t = Tanh(x) s = Sigmoid(z) y = Mul(t, s)", (-inf, inf)),
        ("e = Exp(x) s = ReduceSum(e, axes) y = Div(e, s)", (0.0, inf)),
        ("c = Clip(x, low, high) y = ReduceMean(c, axes)", (-0.5, 3.0)),
        ("t = Relu(x) y = Sub(t, z)", (-inf, inf)),
    ],
)
def test_the_range_is_the_least_that_is_known_and_holds(body: str, expected: tuple[float, float]) -> None:
    proto = _model(body)
    model = lift(proto)
    low, high = result_range(model.graph.outputs[0])
    assert (low, high) == expected
    rng = np.random.default_rng(0)
    feeds = {name: 20 * rng.standard_normal((2, 4), np.float32) for name in ("x", "z")}
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    assert low <= found.min() and found.max() <= high


def test_a_limit_that_a_caller_may_feed_is_none() -> None:
    proto = _model("y = Clip(x, low, high)")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("high", onnx.TensorProto.FLOAT, []))
    assert result_range(lift(proto).graph.outputs[0]) == (-0.5, inf)


def test_the_limits_of_old_opsets_are_attributes() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["": 7]> g (float[4] x) => (float[4] y) '
        "{ y = Clip<min = 0.0, max = 6.0>(x) }"
    )
    assert result_range(lift(proto).graph.outputs[0]) == (0.0, 6.0)


def test_many_paths_take_no_longer_than_one() -> None:
    steps = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(14))
    model = lift(_model(f"a0 = Sigmoid(x) {steps} y = Identity(a14)"))
    assert result_range(model.graph.outputs[0]) == (0.0, 2.0**14)


def test_a_dropout_that_trains_enlarges_what_it_keeps() -> None:
    proto = _model("s = Sigmoid(x) y = Dropout(s, ratio, train)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "train"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.5, np.float32), "ratio"))
    assert result_range(lift(proto).graph.outputs[0]) == (-inf, inf)
