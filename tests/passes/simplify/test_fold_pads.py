"""Padding of its own in front of convolutions and averages."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import apply, check, run_model

from qc.ir.onnx.lower import lower

ONE = "a = Pad(x, one)"


def left(ops: str, opset: int = 18) -> list[str]:
    """The ops of a model behind the pass, which computes what it did."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1, 2, 6, 6] x) => (float[A, B, C, D] y) <
        float[2, 2, 3, 3] w, float[2, 2, 1, 1] v = {{1, 2, 3, 4}},
        int64[8] one = {{0, 0, 1, 1, 0, 0, 1, 1}}, float two = {{2}}, float zero = {{0}},
        int64[8] crop = {{0, 0, 1, 1, 0, 0, -1, 1}}, int64[8] channels = {{0, 0, 1, 1, 0, 1, 1, 1}},
        int64[8] far = {{0, 0, 3, 1, 0, 0, 1, 1}}, float low = {{-3.4028234663852886e38}}, float less = {{-1}}
    > {{ {ops} }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(-np.inf), "infinite"))
    ir, _, _ = apply("fold-pads, eliminate-dead-code", model)
    made = lower(ir)
    check(made)
    for feed in random_feeds(model):
        np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-5)
    return [node.op_type for node in made.graph.node]


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (f"{ONE} y = Conv(a, w)", ["Conv"]),
        (f"{ONE} y = Conv<pads = [0, 1, 2, 0], strides = [2, 1]>(a, w)", ["Conv"]),
        (f'{ONE} y = Conv<auto_pad = "VALID">(a, w)', ["Conv"]),
        ("a = Pad(x, one, zero) b = Pad(a, far) y = Conv(b, w)", ["Conv"]),
        (f"{ONE} b = Conv(a, w) c = Conv(a, w) y = Add(b, c)", ["Conv", "Conv", "Add"]),
        (f"{ONE} y = AveragePool<kernel_shape = [3, 3]>(a)", ["AveragePool"]),
        ("r = Relu(x) a = Pad(r, one) y = MaxPool<kernel_shape = [3, 3]>(a)", ["Relu", "MaxPool"]),
        ("r = Relu(x) a = Pad(r, one, less) y = MaxPool<kernel_shape = [3, 3]>(a)", ["Relu", "MaxPool"]),
        ("a = Pad(x, one, low) y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)", ["MaxPool"]),
        (
            "a = Pad(x, one, infinite) b = MaxPool<kernel_shape = [3, 3]>(a) "
            "c = MaxPool<kernel_shape = [3, 3], pads = [1, 0, 1, 0]>(a) "
            "d = Relu(c) y = Concat<axis = 2>(b, d)",
            ["MaxPool", "MaxPool", "Relu", "Concat"],
        ),
        (
            f"{ONE} y = AveragePool<kernel_shape = [3, 3], strides = [1, 1], ceil_mode = 1>(a)",
            ["AveragePool"],
        ),
        (
            f"{ONE} y = AveragePool<kernel_shape = [3, 3], pads = [1, 0, 0, 0], count_include_pad = 1>(a)",
            ["AveragePool"],
        ),
    ],
)
def test_a_pad_becomes_padding(ops: str, expected: list[str]) -> None:
    assert left(ops) == expected


@pytest.mark.parametrize(
    "ops",
    [
        f'{ONE} y = Conv<auto_pad = "SAME_UPPER">(a, w)',
        f"{ONE} y = Conv<strides = [2, 2]>(a, v)",
        f"{ONE} b = Conv(a, w) c = MaxPool<kernel_shape = [3, 3]>(a) y = Add(b, c)",
        f"{ONE} y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)",
        f"{ONE} y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(a)",
        "a = Pad(x, far) y = AveragePool<kernel_shape = [3, 3]>(a)",
        f"{ONE} y = MaxPool<kernel_shape = [3, 3]>(a)",
        "r = Relu(x) a = Pad(r, one) y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(a)",
        "a = Pad(x, one, two) y = Conv(a, w)",
        "a = Pad(x, one, low) y = AveragePool<kernel_shape = [3, 3]>(a)",
        "a = Pad(x, one, low) y = MaxPool<kernel_shape = [2, 2], dilations = [5, 5]>(a)",
        "r = Relu(x) a = Pad(r, one, two) y = MaxPool<kernel_shape = [3, 3]>(a)",
        "a = Pad(x, crop) y = Conv(a, w)",
        "a = Pad(x, channels) y = AveragePool<kernel_shape = [3, 3]>(a)",
        'a = Pad<mode = "edge">(x, one) y = Conv(a, w)',
    ],
)
def test_a_pad_that_is_no_padding_stays(ops: str) -> None:
    assert "Pad" in left(ops)


def test_an_average_of_old_cannot_count_zeros() -> None:
    model = parse("""<ir_version: 3, opset_import: ["" : 6]>
    g (float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y) {
        a = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1], value = 0.0>(x)
        y = AveragePool<kernel_shape = [3, 3]>(a)
    }""")
    ir, _, _ = apply("fold-pads, eliminate-dead-code", model)
    assert [op.op_type for op in ir.graph.ops()] == ["Pad", "AveragePool"]


def test_a_pad_of_old_has_its_lengths_as_an_attribute() -> None:
    ops = "a = Pad<pads = [0, 0, 1, 0, 0, 0, 0, 1], value = 0.0>(x) y = Conv(a, w)"
    assert left(ops, opset=10) == ["Conv"]
