"""Attributes and parameters: one pattern for all opsets, written, left out or fed as an input."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import version_converter

from qc.ir import lift
from qc.patterns import attribute, match_at, op, value

OLDEST, LATEST = 9, onnx.defs.onnx_opset_version()
X = value("x")
RESIZE = op["Upsample", "Resize"]

# In opset 9: the nodes, a pattern for the last one, and one that asks for something else.
MOVED = {
    "axes of a reduction": (
        "ReduceMean<axes = [-1]>(x)",
        op.ReduceMean(X, axes=[2]),
        op.ReduceMean(X, axes=[1]),
    ),
    "positions of a pool": (
        "GlobalAveragePool(x)",
        op.GlobalAveragePool(X, axes=[-1]),
        op.GlobalAveragePool(X, axes=[1]),
    ),
    "all axes": ("ReduceMax(x)", op.ReduceMax(X, axes=[0, 1, 2]), op.ReduceMax(X, axes=[0, 1])),
    "kept dimensions": ("ReduceSum(x)", op.ReduceSum(X, keepdims=1), op.ReduceSum(X, keepdims=0)),
    "order of axes": ("ReduceL2<axes = [2, 0]>(x)", op.ReduceL2(X, axes=[0, -1]), op.ReduceL2(X, axes=[0])),
    "squeezed axes": ("Squeeze<axes = [0]>(x)", op.Squeeze(X, axes=[-3]), op.Squeeze(X, axes=[1])),
    "squeezed all": ("Squeeze(x)", op.Squeeze(X, axes=[0]), op.Squeeze(X, axes=[0, 1])),
    "unsqueezed axes": ("Unsqueeze<axes = [1]>(x)", op.Unsqueeze(X, axes=[-3]), op.Unsqueeze(X, axes=[2])),
    "limits": ("Clip<min = 0.0, max = 6.0>(x)", op.Clip(X, min=0, max=6), op.Clip(X, min=0, max=5)),
    "one limit": ("Clip<min = 0.0>(x)", op.Clip(X, min=0, max=3.4028234e38), op.Clip(X, min=1)),
    "slice": (
        "Slice<starts = [1], ends = [3], axes = [-1]>(x)",
        op.Slice(X, starts=[1], ends=[3], axes=[2], steps=[1]),
        op.Slice(X, steps=[2]),
    ),
    "slice of the first axes": (
        "Slice<starts = [0, 1], ends = [1, 3]>(x)",
        op.Slice(X, axes=[0, 1], steps=[1, 1]),
        op.Slice(X, axes=[1, 2]),
    ),
    "pads": (
        "Pad<pads = [0, 0, 1, 0, 0, 1], value = 2.0>(x)",
        op.Pad(X, pads=[0, 0, 1, 0, 0, 1], value=2.0, mode="constant", axes=[0, 1, 2]),
        op.Pad(X, value=0.0),
    ),
    "pads with zeros": ("Pad<pads = [0, 0, 1, 0, 0, 1]>(x)", op.Pad(X, value=0), op.Pad(X, value=1)),
    "split": (
        "Split<axis = 2, split = [3, 5]>(x)",
        op.Split(X, axis=-1, split=[3, 5], num_outputs=2),
        op.Split(X, split=[4, 4]),
    ),
    "equal parts": (
        "Split<axis = -1>(x)",
        op.Split(X, axis=2, split=[4, 4], num_outputs=2),
        op.Split(X, num_outputs=3),
    ),
    "k": ("TopK<axis = -1, k = 2>(x)", op.TopK(X, k=2, axis=2, largest=1, sorted=1), op.TopK(X, k=3)),
    "ratio": (
        "Dropout<ratio = 0.25>(x)",
        op.Dropout(X, ratio=0.25, training_mode=0),
        op.Dropout(X, ratio=0.5),
    ),
    "half is the ratio": ("Dropout(x)", op.Dropout(X, ratio=0.5), op.Dropout(X, ratio=0.25)),
    "scales": (
        'Upsample<mode = "nearest">(x, twice)',
        RESIZE(X, ..., scales=[1.0, 2.0, 2.0], mode="nearest"),
        RESIZE(X, ..., scales=[1.0, 1.0, 2.0]),
    ),
    "softmax axis": ("Softmax<axis = 2>(x)", op.Softmax(X, axis=-1), op.Softmax(X, axis=1)),
    "default of a later opset": (
        "BatchNormalization(x, c, c, c, c)",
        op.BatchNormalization(X, ..., training_mode=0, epsilon=1e-5),
        op.BatchNormalization(X, ..., training_mode=1),
    ),
}


def model(nodes, opset, initializers=()):
    """A model in ONNX's text form; ``y`` is its first output."""
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}]> test '
        f"(float[1,4,8] x, float[4] c) => (float y) {{ {nodes} }}"
    )
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, content in dict(initializers).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(content), name))
    return proto


def last_op(proto):
    graph = lift(proto).graph
    return graph.outputs[0].producer


@pytest.mark.parametrize("case", MOVED)
def test_one_pattern_serves_all_opsets(case):
    expression, pattern, other = MOVED[case]
    results = "y, z" if expression.startswith(("Split", "TopK")) else "y"
    constants = {"twice": np.array([1, 2, 2], np.float32)} if "twice" in expression else {}
    oldest = model(f"{results} = {expression}", OLDEST, constants)
    for opset in range(OLDEST, LATEST + 1):
        proto = oldest if opset == OLDEST else version_converter.convert_version(oldest, opset)
        found = last_op(proto)
        assert match_at(pattern, found), f"opset {opset}: {match_at(pattern, found)}"
        assert not match_at(other, found), f"opset {opset}"


@pytest.mark.parametrize(
    ("expression", "opset", "pattern"),
    [
        ("ReduceSum<noop_with_empty_axes = 1>(x)", 13, op.ReduceSum(X, axes=[])),
        ("ReduceSum(x, empty)", 13, op.ReduceSum(X, axes=[0, 1, 2])),
        ("Pad(x, one_pad, , last)", 18, op.Pad(X, pads=[0, 0, 1, 0, 0, 2], value=0)),
        ("Clip(x, zero_in_list)", 13, op.Clip(X, min=0)),
        (
            "Resize(x, twice)",
            10,
            op.Resize(X, scales=[1.0, 2.0, 2.0], coordinate_transformation_mode="asymmetric"),
        ),
        (
            "Resize(x, , twice)",
            11,
            op.Resize(X, scales=[1.0, 2.0, 2.0], coordinate_transformation_mode="half_pixel"),
        ),
        ("Resize(x, , , sizes)", 13, op.Resize(X, sizes=[1, 8, 8], nearest_mode="round_prefer_floor")),
        ("CumSum(x, last_axis)", 14, op.CumSum(X, axis=-1, reverse=0)),
        ("Trilu(x)", 14, op.Trilu(X, k=0, upper=1)),
        ("Split<num_outputs = 3>(x)", 18, op.Split(X, axis=0, num_outputs=3)),
        ("Gather<axis = -1>(x, last)", 13, op.Gather(X, value(), axis=2)),
        ("LeakyRelu(x)", 16, op.LeakyRelu(X, alpha=0.01)),
    ],
)
def test_how_else_models_write_them(expression, opset, pattern):
    constants = {
        "empty": np.zeros(0, np.int64),
        "one_pad": np.array([1, 2]),
        "last": np.array([-1]),
        "last_axis": np.array(-1),
        "zero_in_list": np.zeros(1, np.float32),
        "twice": np.array([1, 2, 2], np.float32),
        "sizes": np.array([1, 8, 8]),
    }
    used = {name: content for name, content in constants.items() if name in expression}
    results = "y, z, w" if expression.startswith("Split") else "y"
    found = last_op(model(f"{results} = {expression}", opset, used))
    assert match_at(pattern, found), str(match_at(pattern, found))


def test_what_the_graph_computes_is_not_known():
    found = last_op(model("n = Shape(x) a = Size(n) u = Unsqueeze(a, n) y = ReduceSum(x, n)", 13))
    assert match_at(op.ReduceSum(X), found)
    assert not match_at(op.ReduceSum(X, axes=[0, 1, 2]), found)
    mismatch = match_at(op.ReduceSum(X, axes=attribute("axes")), found)
    assert "axes that the model fixes, but has axes=unknown" in mismatch.reason
