"""Layers: the matrix of a weight times the features of its input is what ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.models import parse
from support.pipelines import run_model

from qc.ir import lift
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter
from qc.passes.optimize.layers.layer import Layer, layers_of
from qc.runtime import OrtExecutor

EXECUTOR, EVERYTHING = OrtExecutor(threads=1), 1 << 40


def model_of(
    op_type: str, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, **attributes: object
) -> onnx.ModelProto:
    names = ["x", "w"] + (["b"] if bias is not None else [])
    node = helper.make_node(op_type, names, ["y"], **attributes)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(weight, "w")]
    stored += [numpy_helper.from_array(bias, "b")] if bias is not None else []
    graph = helper.make_graph([node], "g", [info], [result], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def features(x: np.ndarray, reads: Sequence[np.ndarray], groups: int) -> np.ndarray:
    """What a kernel sees of ``x``: (batch, groups, channels / group * kernel elements, places).

    Args:
        reads: for each spatial axis an array (places, kernel) of indices into ``x``, -1 for a zero.
    """
    padded = np.pad(x, [(0, 0), (0, 0), *([(0, 1)] * len(reads))])  # index -1 is a zero
    for axis, index in enumerate(reads):
        padded = np.take(padded, index, axis=2 + 2 * axis)
    spatial = len(reads)
    places, kernel = range(2, 2 + 2 * spatial, 2), range(3, 3 + 2 * spatial, 2)
    ordered = padded.transpose(0, 1, *kernel, *places)
    return ordered.reshape(x.shape[0], groups, -1, int(np.prod([len(index) for index in reads])))


def check(made: onnx.ModelProto, x: np.ndarray, seen: np.ndarray, bias: np.ndarray | None) -> None:
    """Compares with ONNX Runtime.

    Args:
        seen: the features; (batch, groups, features, places).
    """
    expected = run_model(made, {"x": x})["y"]
    (layer,) = layers_of(lift(made))
    result = layer.gain * np.einsum("gof,bgfp->bgop", layer.matrix, seen)
    result = result.reshape(seen.shape[0], -1, seen.shape[-1])
    if bias is not None:
        result += bias.reshape(1, -1, 1)
    channels = np.moveaxis(expected, layer.output_axis, 1)
    np.testing.assert_allclose(result.ravel(), channels.ravel(), rtol=1e-4, atol=1e-4)
    rows = np.moveaxis(seen, 0, -1).reshape(*seen.shape[1:3], -1).astype(np.float64)
    mean, gram, _ = EXECUTOR.gram([(x,)], layer.features, EVERYTHING)
    np.testing.assert_allclose(mean, rows.mean(-1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gram, rows @ rows.swapaxes(1, 2) / rows.shape[-1], rtol=1e-6, atol=1e-6)


def convolution_reads(
    length: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> np.ndarray:
    count = (length + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1
    index = stride * np.arange(count)[:, None] + dilation * np.arange(kernel) - pads[0]
    return np.where((index >= 0) & (index < length), index, -1)


def transposed_reads(
    length: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> np.ndarray:
    count = stride * (length - 1) + dilation * (kernel - 1) + 1 - sum(pads)
    index = np.arange(count)[:, None] + pads[0] - dilation * np.arange(kernel)
    inside = (index % stride == 0) & (index >= 0) & (index < stride * length)
    return np.where(inside, index // stride, -1)


@settings(max_examples=60, deadline=None)
@given(
    transposed=st.booleans(),
    groups=st.sampled_from([1, 2, 3]),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    axes=st.lists(
        st.tuples(
            st.integers(5, 7), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(0, 1)
        ),
        min_size=1,
        max_size=2,
    ),
    has_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_convolutions(
    transposed: bool,
    groups: int,
    channels: tuple[int, int],
    axes: list[tuple[int, int, int, int, int]],
    has_bias: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    lengths, kernel, strides, dilations, before = zip(*axes, strict=True)
    pads = [(pad, 1 - pad) for pad in before]
    shape = (groups * channels[0], channels[1]) if transposed else (groups * channels[1], channels[0])
    weight = random.normal(size=(*shape, *kernel)).astype("f")
    x = random.normal(size=(2, groups * channels[0], *lengths)).astype("f")
    bias = random.normal(size=groups * channels[1]).astype("f") if has_bias else None
    attributes = {
        "group": groups,
        "strides": strides,
        "dilations": dilations,
        "pads": [first for first, _ in pads] + [last for _, last in pads],
    }
    made = model_of("ConvTranspose" if transposed else "Conv", x, weight, bias, **attributes)
    reads = transposed_reads if transposed else convolution_reads
    indices = [reads(*axis) for axis in zip(lengths, kernel, strides, dilations, pads, strict=True)]
    check(made, x, features(x, indices, groups), bias)
    assert_identity(made)


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])  # up to one beyond the kernel
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_pads_that_follow_from_shapes(op_type: str, stride: int, auto_pad: str) -> None:
    check_moments(op_type, strides=(stride, 2), auto_pad=auto_pad)


@pytest.mark.parametrize(
    "attributes",
    [
        {"output_padding": (1, 0), "strides": (2, 2), "pads": (1, 0, 1, 1)},
        {"output_shape": (12, 13), "strides": (2, 2)},
        {"output_shape": (11, 14), "strides": (2, 2), "auto_pad": "SAME_UPPER"},
        {"output_shape": (11, 14), "strides": (2, 2), "auto_pad": "SAME_LOWER"},
    ],
)
def test_transposed_convolutions_of_a_given_size(attributes: dict[str, object]) -> None:
    check_moments("ConvTranspose", **attributes)


def check_moments(op_type: str, **attributes: object) -> None:
    """The means of results and of their squares follow from the features of the layer."""
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(2, 4, 6, 7)) + 1, random.normal(size=(4, 2, 3, 2)) + 0.5
    made = model_of(op_type, x.astype("f"), weight.astype("f"), None, group=2, **attributes)
    expected = np.moveaxis(run_model(made, {"x": x.astype("f")})["y"].astype(np.float64), 1, 0)
    (layer,) = layers_of(lift(made))
    mean, gram, _ = EXECUTOR.gram([(x.astype("f"),)], layer.features, EVERYTHING)
    matrix = layer.matrix.astype(np.float64)
    squares = np.einsum("goi,gij,goj->go", matrix, gram, matrix)
    axes = (1, 2, 3)
    np.testing.assert_allclose(np.einsum("goi,gi->go", matrix, mean).ravel(), expected.mean(axes), rtol=1e-5)
    np.testing.assert_allclose(squares.ravel(), np.square(expected).mean(axes), rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    trans_a=st.integers(0, 1),
    trans_b=st.integers(0, 1),
    scales=st.tuples(st.sampled_from([1.0, 0.5]), st.sampled_from([1.0, -2.0])),
    has_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_products(trans_a: int, trans_b: int, scales: tuple[float, float], has_bias: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(4, 3) if trans_a else (3, 4)).astype("f")
    weight = random.normal(size=(5, 4) if trans_b else (4, 5)).astype("f")
    bias = random.normal(size=5).astype("f") if has_bias else None
    alpha, beta = scales
    made = model_of("Gemm", x, weight, bias, transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)
    rows = x.T if trans_a else x
    check(made, x, rows[:, None, :, None], beta * bias if bias is not None else None)
    assert_identity(made)


def test_a_product_with_leading_axes() -> None:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(2, 3, 4)).astype("f"), random.normal(size=(4, 5)).astype("f")
    made = model_of("MatMul", x, weight, None)
    (layer,) = layers_of(lift(made))
    assert (layer.input_axis, layer.output_axis, layer.matrix.shape) == (2, 2, (1, 5, 4))
    np.testing.assert_allclose(run_model(made, {"x": x})["y"], x @ layer.matrix[0].T, rtol=1e-5)
    assert_identity(made)


def assert_identity(made: onnx.ModelProto) -> None:
    """The matrix of a layer, given back to it, changes no bit; another one is read back as it is."""
    model = lift(made)
    (layer,) = layers_of(model)
    before = layer.weight.array.copy()
    set_matrix(model, layer, layer.matrix)
    np.testing.assert_array_equal(layer.weight.array, before)
    other = np.random.default_rng(1).normal(size=layer.matrix.shape).astype("f")
    set_matrix(model, layer, other)
    np.testing.assert_array_equal(layer.matrix, other)
    assert layer.weight.array.shape == before.shape


def set_matrix(model: Model, layer: Layer, matrix: np.ndarray) -> None:
    rewriter = Rewriter(model)
    with rewriter.action("test", layer.op):
        layer.with_matrix(rewriter, matrix)


def test_a_weight_that_others_read_stays_theirs() -> None:
    model = lift(
        parse("""g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
            a = MatMul(x, w)
            y = MatMul(a, w)
        }""")
    )
    first, second = layers_of(model)
    set_matrix(model, first, 2 * first.matrix)
    np.testing.assert_array_equal(first.weight.array, [[2, 4], [6, 8]])
    np.testing.assert_array_equal(second.weight.array, [[1, 2], [3, 4]])
    result = run_model(lower(model), {"x": np.ones((1, 2), "f")})["y"]
    np.testing.assert_array_equal(result, [[8 * 1 + 12 * 3, 8 * 2 + 12 * 4]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) { y = MatMul(x, w) }", "fed"),
        (
            "g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y) <float[2, 2] w> { y = MatMul(x, w) }",
            "a default of what may be fed",
        ),
        ("g (float[3, 2, 2] x) => (float[3, 2, 2] y) <float[3, 2, 2] w> { y = MatMul(x, w) }", "a stack"),
        ("g (float[2, 2] x) => (float[2] y) <float[2] w> { y = MatMul(x, w) }", "a vector"),
        ("g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w> { y = Mul(x, w) }", "no product"),
    ],
)
def test_what_is_no_layer(text: str, reason: str) -> None:
    assert not layers_of(lift(parse(text))), reason
