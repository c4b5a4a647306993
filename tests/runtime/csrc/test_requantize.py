"""The arithmetic of devices: the kernels equal their definition in numpy, inside sessions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.folders import FIXTURES
from support.requantize import (
    quantize_in_float16,
    requantize,
    requantize_matmul,
    requantize_prelu,
    requantize_product,
    requantize_quotient,
    requantize_sum,
)
from support.requantize_normalization import requantize_normalization, requantize_softmax

from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.runtime.native.library import library_path

SEEDS = st.integers(0, 2**32 - 1)
LIMITS = np.array([0, 255], np.int32)


def run(op_type: str, inputs: list[Any], **attributes: Any) -> np.ndarray:
    """What an operator of qc makes of constants."""
    names = [f"i{index}" for index in range(len(inputs))]
    constants = [numpy_helper.from_array(np.asarray(x), name) for x, name in zip(inputs, names, strict=True)]
    node = helper.make_node(op_type, names, ["y"], domain="qc", **attributes)
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("qc", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", [], made, constants), opset_imports=opsets, ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library_path()))
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, {})[0])


def grid(random: np.random.Generator, scale: float | None = None) -> Encoding:
    scale = float(np.exp(random.uniform(-6, 1))) if scale is None else scale
    return Encoding(QuantSpec.of("uint8"), np.float32(scale), np.int32(random.integers(256)))


def parameters(encoding: Encoding) -> list[np.ndarray]:
    return [encoding.scale, encoding.zero_point]


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, arithmetic=st.sampled_from(list(Arithmetic)), channels=st.booleans(), off=st.booleans())
def test_requantize_is_its_definition(seed: int, arithmetic: Arithmetic, channels: bool, off: bool) -> None:
    """Where ``off`` the last of the channels, if there are some, has a scale of 0."""
    random = np.random.default_rng(seed)
    data, encoding = grid(random), grid(random)
    weight = np.exp(random.uniform(-6, 0, 3 if channels else 1)).astype(np.float32)
    weight[2:] = 0 if off else weight[2:]
    of_channels = weight.reshape(-1, 1)
    step = np.float64(data.scale) * of_channels.astype(np.float64)
    most = 300 * encoding.scale / step[step > 0].min()
    x = (np.rint(random.uniform(-most, most, (2, 3, 500))) * step).astype(np.float32)
    x[:, 2:] = 0.3 if off else x[:, 2:]
    inputs = [x, *parameters(encoding), LIMITS, data.scale, weight]
    found = run("Requantize", inputs, arithmetic=arithmetic.value, axis=1)
    assert np.array_equal(found, requantize(x, data.scale, of_channels, encoding, arithmetic))


def test_every_place_can_have_a_scale_of_its_own() -> None:
    random = np.random.default_rng(0)
    data, encoding = grid(random), grid(random)
    weight = (1 / random.integers(4, 10, (5, 6))).astype(np.float32)
    x = (random.integers(-999, 999, (2, 3, 5, 6)) * data.scale * weight).astype(np.float32)
    inputs = [x, *parameters(encoding), LIMITS, data.scale, weight]
    found = run("Requantize", inputs, arithmetic=Arithmetic.HALVES.value, axis=-2)
    assert np.array_equal(found, requantize(x, data.scale, weight, encoding, Arithmetic.HALVES))


@pytest.mark.parametrize("seed", [87, 752, 906])
def test_a_channel_of_zeros_leaves_the_others_their_multipliers(seed: int) -> None:
    """Those of these seeds are others in float32 if they are shares of another largest scale."""
    random = np.random.default_rng(seed)
    data, encoding = grid(random), grid(random)
    weight = np.exp(random.uniform(-6, -0.5, 3)).astype(np.float32)
    weight[2] = 0
    of_channels = weight.reshape(-1, 1)
    step = np.float64(data.scale) * of_channels.astype(np.float64)
    codes = np.linspace(-300, 300, 20001) * np.float64(encoding.scale)
    x = (np.rint(codes / step[:2]) * step[:2]).astype(np.float32)
    x = np.concatenate([x, np.full((1, len(codes)), 0.3, np.float32)])[np.newaxis]
    inputs = [x, *parameters(encoding), LIMITS, data.scale, weight]
    found = run("Requantize", inputs, arithmetic=Arithmetic.VECTOR.value, axis=1)
    assert np.array_equal(found, requantize(x, data.scale, of_channels, encoding, Arithmetic.VECTOR))


def test_the_zero_point_is_divided_as_the_emulator_does() -> None:
    """Codes that the emulator made of a Conv, on 16 sums either side of a tie in each of 256 channels.

    The multipliers are small (2^-18 to 2^-15), so that a zero point is millions of steps. A quotient in
    float64, or one that is not found by way of the largest scale, is off by some, which shows at the tie.
    """
    file = np.load(FIXTURES / "qnn_htp_2.7.0_constant.npz")
    encoding = Encoding(QuantSpec.of("uint8"), file["scale"], file["zero_point"])
    of_input, weight = file["input_scale"], file["weight_scale"]
    of_channels = weight[:, np.newaxis]
    x = (file["sums"] * (np.float64(of_input) * of_channels.astype(np.float64))).astype(np.float32)
    made = requantize(x, of_input, of_channels, encoding, Arithmetic.MATRIX)
    assert np.array_equal(np.rint(made / encoding.scale) + encoding.zero_point, file["codes"])
    inputs = [x, *parameters(encoding), LIMITS, of_input, weight]
    assert np.array_equal(run("Requantize", inputs, arithmetic="matrix", axis=0), made)


Pair = tuple[np.ndarray, np.ndarray, tuple[Encoding, Encoding]]


def pair(random: np.random.Generator, broadcast: bool) -> Pair:
    """Two tensors on grids, which broadcast, and the grids."""
    grids = grid(random), grid(random)
    shapes = ((2, 3, 100), (3, 1) if broadcast else (2, 3, 100))
    a, b = (
        (random.integers(0, 256, shape) - one.zero_point).astype(np.float32) * one.scale
        for shape, one in zip(shapes, grids, strict=True)
    )
    return a, b, grids


def of_pair(
    op_type: str,
    a: np.ndarray,
    b: np.ndarray,
    grids: tuple[Encoding, Encoding],
    to: Encoding,
    **attributes: int,
) -> np.ndarray:
    inputs = [a, *parameters(grids[0]), b, *parameters(grids[1]), *parameters(to), LIMITS]
    return run(op_type, inputs, **attributes)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, sign=st.sampled_from([1, -1]), broadcast=st.booleans())
def test_a_sum_is_its_definition(seed: int, sign: int, broadcast: bool) -> None:
    random = np.random.default_rng(seed)
    a, b, grids = pair(random, broadcast)
    encoding = grid(random, float(sum(one.scale for one in grids) * random.uniform(0.3, 2)))
    found = of_pair("RequantizeSum", a, b, grids, encoding, subtract=int(sign < 0))
    assert np.array_equal(found, requantize_sum(a, b, grids, encoding, sign))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, broadcast=st.booleans())
def test_a_product_is_its_definition(seed: int, broadcast: bool) -> None:
    random = np.random.default_rng(seed)
    a, b, grids = pair(random, broadcast)
    largest = float(np.float64(grids[0].scale) * grids[1].scale)
    encoding = grid(random, largest * np.exp(random.uniform(-1, 7)))
    found = of_pair("RequantizeProduct", a, b, grids, encoding)
    assert np.array_equal(found, requantize_product(a, b, grids, encoding))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, broadcast=st.booleans(), exponent=st.floats(-9, 14))
def test_a_quotient_is_its_definition(seed: int, broadcast: bool, exponent: float) -> None:
    """Some of the divisors are zeros."""
    random = np.random.default_rng(seed)
    a, b, grids = pair(random, broadcast)
    encoding = grid(random, float(grids[0].scale / grids[1].scale * 2.0**-exponent))
    found = of_pair("RequantizeQuotient", a, b, grids, encoding)
    assert np.array_equal(found, requantize_quotient(a, b, grids, encoding))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, batches=st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (2, 2))]))
def test_a_matrix_product_is_its_definition(
    seed: int, batches: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    random = np.random.default_rng(seed)
    rows, inner, columns = random.integers(1, 20, 3)
    grids = grid(random), grid(random)
    a, b = (
        (random.integers(0, 256, (*batch, *shape)) - one.zero_point).astype(np.float32) * one.scale
        for one, batch, shape in zip(grids, batches, ((rows, inner), (inner, columns)), strict=True)
    )
    encoding = grid(random, float(max(np.std(np.matmul(a, b)), grids[0].scale) / random.uniform(10, 80)))
    found = of_pair("RequantizeMatMul", a, b, grids, encoding)
    assert np.array_equal(found, requantize_matmul(a, b, grids, encoding))


def with_what_is_not_finite(random: np.random.Generator, x: np.ndarray) -> np.ndarray:
    special = random.choice(np.array([np.nan, np.inf, -np.inf], np.float32), x.shape)
    return np.where(random.random(x.shape) < 0.1, special, x)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("op_type", "definition"),
    [
        ("RequantizeSum", functools.partial(requantize_sum, sign=1)),
        ("RequantizeProduct", requantize_product),
        ("RequantizeQuotient", requantize_quotient),
        ("RequantizeMatMul", requantize_matmul),
    ],
)
def test_what_has_no_code_gives_the_lowest_one_in_pairs(op_type: str, definition: Any) -> None:
    """Some of the others are beyond their grids."""
    random = np.random.default_rng(1)
    grids, encoding = (grid(random), grid(random)), grid(random)
    shapes = ((12, 9), (9, 20)) if op_type == "RequantizeMatMul" else ((3, 40, 50), (40, 1))
    a, b = (
        with_what_is_not_finite(random, random.integers(-300, 300, shape).astype(np.float32) * one.scale)
        for shape, one in zip(shapes, grids, strict=True)
    )
    found = of_pair(op_type, a, b, grids, encoding)
    assert np.array_equal(found, definition(a, b, grids, encoding))
    of_a, of_b = np.isfinite(a), np.isfinite(b)
    known = of_a.all(-1, keepdims=True) & of_b.all(-2) if op_type == "RequantizeMatMul" else of_a & of_b
    assert (found[~known] == encoding.minimum).all() and (found[known] > encoding.minimum).any()


def test_infinity_gives_the_end_of_the_grid_in_ops_of_one_tensor() -> None:
    random = np.random.default_rng(2)
    encoding, data = grid(random), Encoding(QuantSpec.of("uint8"), np.float32(1), np.int32(0))
    x, one, half = np.array([np.nan, np.inf, -np.inf], np.float32), np.float32(1), np.float32(0.5)
    inputs = [x, *parameters(encoding), LIMITS]
    made = [
        (run("RequantizePRelu", [*inputs, one, half]), requantize_prelu(x, data, half, encoding)),
        (run("QuantizeInFloat16", inputs), quantize_in_float16(x, encoding)),
    ]
    for kind in Arithmetic:
        found = run("Requantize", [*inputs, one, half], arithmetic=kind.value)
        made.append((found, requantize(x, one, half, encoding, kind)))
    ends = [encoding.minimum, encoding.maximum, encoding.minimum]
    for found, wanted in made:
        assert found.tolist() == wanted.tolist() == ends


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [2, 9, 30])
def test_rows_of_what_has_no_code_become_the_lowest_one(length: int) -> None:
    random = np.random.default_rng(length)
    data, to = grid(random, 0.1), grid(random, 1 / 128)
    codes = random.integers(0, 256, (3, 20, length)) - data.zero_point
    x = with_what_is_not_finite(random, codes.astype(np.float32) * data.scale)
    share = Encoding(QuantSpec.of("uint8"), np.float32(1 / 255), np.int32(0))
    inputs = [np.zeros_like(x), *parameters(share), LIMITS, x, data.scale]
    results = [(run("RequantizeSoftmax", inputs), requantize_softmax(x, data, share), share)]
    weight, bias = to.scale * random.integers(1, 99, length).astype(np.float32), np.zeros(1, np.float32)
    inputs[1:3] = parameters(to)
    for centered in (True, False):
        given = [*inputs, weight, to.scale, bias, np.float32(1e-5)]
        found = run("RequantizeNormalization", given, centered=int(centered))
        wanted = requantize_normalization(x, data, weight, to.scale, bias, to, 1e-5, centered)
        results.append((found, wanted, to))
    known = np.isfinite(x).all(-1)
    for found, wanted, encoding in results:
        assert np.array_equal(found, wanted)
        assert (found[~known] == encoding.minimum).all() and (found[known] > encoding.minimum).any()


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1])
def test_scales_that_are_none_are_refused(scale: float) -> None:
    x, one, zero = np.ones(3, np.float32), np.float32(1), np.int32(0)
    with pytest.raises(Exception, match=r"b_scale is .* but must be finite and not below zero"):
        run("RequantizeSum", [x, one, zero, x, np.float32(scale), zero, one, zero, LIMITS])


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, channels=st.booleans())
def test_a_slope_is_its_definition(seed: int, channels: bool) -> None:
    random = np.random.default_rng(seed)
    data, encoding = grid(random), grid(random)
    x = (random.integers(-255, 256, (2, 3, 500)) * data.scale).astype(np.float32)
    slope = random.normal(0, 0.3, (3, 1) if channels else 1).astype(np.float32)
    found = run("RequantizePRelu", [x, *parameters(encoding), LIMITS, data.scale, slope])
    assert np.array_equal(found, requantize_prelu(x, data, slope, encoding))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, with_zero_point=st.booleans())
def test_quantizing_in_float16_is_its_definition(seed: int, with_zero_point: bool) -> None:
    random = np.random.default_rng(seed)
    encoding = grid(random)
    x = random.uniform(-300, 300, 1000).astype(np.float32) * encoding.scale
    x[:3] = np.inf, -np.inf, 0
    inputs = [x, *parameters(encoding), LIMITS]
    found = run("QuantizeInFloat16", inputs, with_zero_point=int(with_zero_point))
    assert np.array_equal(found, quantize_in_float16(x, encoding, with_zero_point))


@pytest.mark.parametrize("index", range(16))
def test_a_product_has_the_codes_of_the_emulator(index: int) -> None:
    """300 products of a Mul; up to half of them are those that exact arithmetic rounds otherwise.

    In the first three models the constant does not fit with 15 bits, in the next two it is a tie.
    """
    file = np.load(FIXTURES / "qnn_htp_2.7.0_products.npz")
    uint8 = QuantSpec.of("uint8")
    a, b, to = (
        Encoding(uint8, scale, zero_point)
        for scale, zero_point in zip(file["scales"][index], file["zero_points"][index], strict=True)
    )
    numbers = [
        (file[name][index] - one.zero_point).astype(np.float32) * one.scale
        for name, one in (("a", a), ("b", b))
    ]
    made = requantize_product(numbers[0], numbers[1], (a, b), to)
    assert np.array_equal(np.rint(made / to.scale) + to.zero_point, file["codes"][index])


def test_a_scale_of_zero_switches_off() -> None:
    x = np.array([[0.3, 1.7]], np.float32)
    one, off, zero = np.float32(1), np.float32(0), np.int32(0)
    for scales in ((off, one, one), (one, off, one), (one, one, off)):
        found = run("Requantize", [x, scales[0], zero, LIMITS, *scales[1:]], arithmetic="matrix")
        assert np.array_equal(found, x)
    assert np.array_equal(run("QuantizeInFloat16", [x, off, zero, LIMITS]), x)
    inputs = [x, one, zero, x, off, zero, one, zero, LIMITS]
    assert np.array_equal(run("RequantizeSum", inputs, subtract=1), x - x)
    assert np.array_equal(run("RequantizeProduct", inputs), x * x)
    assert np.array_equal(run("RequantizeQuotient", inputs), x / x)
    inputs[3] = x.T
    assert np.allclose(run("RequantizeMatMul", inputs), x @ x.T, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([np.ones((1, 3), np.float32), 1, 0, [1.0, 2.0]], r"weight_scale has shape \(2,\), which"),
        ([np.ones((1, 3), np.float32), [1.0, 1.0], [0, 0], [1.0]], "scale has shape"),
    ],
)
def test_what_does_not_fit_is_refused(inputs: list[Any], said: str) -> None:
    x, scale, zero_point, weight = inputs
    given = [x, np.float32(scale), np.int32(zero_point), LIMITS, np.float32(1), np.float32(weight)]
    with pytest.raises(Exception, match=said):
        run("Requantize", given, arithmetic="codes", axis=1)


def test_matrices_that_do_not_fit_are_refused() -> None:
    one = [np.float32(1), np.int32(0)]
    given = [np.ones((2, 3), np.float32), *one, np.ones((2, 3), np.float32), *one, *one, LIMITS]
    with pytest.raises(Exception, match=r"no matrix product of shapes \(2, 3\) and \(2, 3\)"):
        run("RequantizeMatMul", given)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    length=st.one_of(st.just(2), st.integers(1, 40)),
    levels=st.sampled_from([255, 256, 64]),
    axis=st.sampled_from([-1, 1]),
)
def test_a_softmax_is_its_definition(seed: int, length: int, levels: int, axis: int) -> None:
    random = np.random.default_rng(seed)
    data, encoding = grid(random), Encoding(QuantSpec.of("uint8"), np.float32(1 / levels), np.int32(0))
    shape = (3, length, 5) if axis == 1 else (3, 5, length)
    x = (random.integers(0, 256, shape) - data.zero_point).astype(np.float32) * data.scale
    inputs = [np.zeros_like(x), *parameters(encoding), LIMITS, x, data.scale]
    found = run("RequantizeSoftmax", inputs, axis=axis)
    assert np.array_equal(found, requantize_softmax(x, data, encoding, axis))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, centered=st.booleans(), flat=st.booleans())
def test_a_normalization_is_its_definition(seed: int, centered: bool, flat: bool) -> None:
    """Rows that are ``flat`` have one number, so that epsilon alone is below the fraction."""
    random = np.random.default_rng(seed)
    length = int(random.integers(2, 60))
    data, of_weight, encoding = grid(random), grid(random), grid(random)
    x = (random.integers(0, 1 if flat else 256, (2, 7, length)) - data.zero_point).astype(
        np.float32
    ) * data.scale
    weight = (random.integers(0, 256, length) - of_weight.zero_point).astype(np.float32) * of_weight.scale
    bias = random.normal(0, 100 * encoding.scale, length).astype(np.float32)
    inputs = [np.zeros_like(x), *parameters(encoding), LIMITS, x, data.scale, weight, of_weight.scale, bias]
    found = run("RequantizeNormalization", [*inputs, np.float32(1e-5)], centered=int(centered))
    wanted = requantize_normalization(x, data, weight, of_weight.scale, bias, encoding, 1e-5, centered)
    assert np.array_equal(found, wanted)


def test_rows_of_other_lengths_than_their_weights_are_refused() -> None:
    data = grid(np.random.default_rng(0))
    x = np.zeros((2, 4), np.float32)
    weight, bias = np.ones(3, np.float32), np.zeros(1, np.float32)
    inputs = [x, *parameters(data), LIMITS, x, data.scale, weight, data.scale, bias]
    with pytest.raises(Exception, match=r"weight has shape .* for rows of 4"):
        run("RequantizeNormalization", [*inputs, np.float32(1e-5)])
