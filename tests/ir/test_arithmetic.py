"""The arithmetic of grids: its properties, and that it is what ONNX defines."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.models import floats, model_of
from support.pipelines import run_model

from qc.ir.errors import UsageError
from qc.ir.quant.arithmetic import (
    Rounding,
    dequantize,
    fake_quantize,
    quantize,
    reduce_groups,
    round_ties,
    spread,
)
from qc.ir.quant.formats import FloatFormat, IntFormat, parse_format
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec

INTEGERS = [f"{sign}int{bits}" for bits in range(2, 17) for sign in ("", "u")]
FLOATS = ["float16", "bfloat16", "float8e4m3fn", "float8e5m2"]
SHAPE = (4, 6)


@st.composite
def encodings(draw: st.DrawFn, formats: tuple[str, ...] = (*INTEGERS, *FLOATS)) -> Encoding:
    """Encodings of every format and granularity for a tensor of ``SHAPE``."""
    format = parse_format(draw(st.sampled_from(formats)))
    choices: list[Granularity] = [PerTensor(), PerChannel(0), PerChannel(1), PerChannel(-1), PerBlock(1, 3)]
    granularity = draw(st.sampled_from([*choices, PerBlock(0, 3), PerBlock(-1, 4)]))
    shape = reduce_groups(np.zeros(SHAPE), granularity, np.max).shape
    unscaled = isinstance(format, FloatFormat) and not format.scaled
    scales = st.floats(2**-20, 2**10, width=32) if not unscaled else st.just(1.0)
    scale = draw(hnp.arrays(np.float32, shape, elements=scales))
    low, high = (format.lowest, format.highest) if isinstance(format, IntFormat) else (0, 0)
    zero_point = draw(hnp.arrays(np.int32, shape, elements=st.integers(low, high)))
    narrow = draw(st.booleans()) and isinstance(format, IntFormat)
    if narrow and isinstance(format, IntFormat):
        zero_point = np.maximum(zero_point, format.lowest + 1)
    return Encoding(QuantSpec(format, narrow=narrow, granularity=granularity), scale, zero_point)


def tensors() -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float32, SHAPE, elements=st.floats(-1e6, 1e6, width=32))


@given(tensors(), encodings(), st.sampled_from(Rounding))
def test_a_rounded_tensor_is_on_its_grid(x: np.ndarray, encoding: Encoding, rounding: Rounding) -> None:
    once = fake_quantize(x, encoding, rounding)
    assert once.dtype == np.float32
    np.testing.assert_array_equal(fake_quantize(once, encoding, rounding), once)


@given(tensors(), tensors(), encodings(), st.sampled_from(Rounding))
def test_rounding_is_monotone(x: np.ndarray, y: np.ndarray, encoding: Encoding, rounding: Rounding) -> None:
    low, high = np.minimum(x, y), np.maximum(x, y)
    assert (fake_quantize(low, encoding, rounding) <= fake_quantize(high, encoding, rounding)).all()


@given(encodings())
def test_zero_is_exact(encoding: Encoding) -> None:
    assert not fake_quantize(np.zeros(SHAPE, np.float32), encoding).any()


@given(tensors(), encodings(tuple(INTEGERS)))
def test_results_are_in_range_and_near(x: np.ndarray, encoding: Encoding) -> None:
    rounded = fake_quantize(x, encoding)
    assert encoding.minimum.dtype == encoding.maximum.dtype == np.float32
    low, high = (spread(end, encoding, SHAPE) for end in (encoding.minimum, encoding.maximum))
    assert (rounded >= low).all() and (rounded <= high).all()
    step = spread(encoding.scale, encoding, SHAPE).astype(np.float64)
    inside = (x >= low) & (x <= high)
    slack = 1e-6 * np.abs(x)  # of the float32 division and multiplication
    assert (np.abs(rounded.astype(np.float64) - x) <= step / 2 + slack)[inside].all()


@given(tensors(), encodings())
def test_codes_stand_for_the_rounded_values(x: np.ndarray, encoding: Encoding) -> None:
    codes = quantize(x, encoding)
    np.testing.assert_array_equal(dequantize(codes, encoding), fake_quantize(x, encoding))
    if isinstance(encoding.spec.format, IntFormat):
        low, high = encoding.spec.code_range
        assert codes.dtype == np.int32 and codes.min() >= low and codes.max() <= high
    else:
        assert codes.dtype == encoding.spec.format.dtype


def test_ties() -> None:
    x = np.asarray([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], np.float32)
    np.testing.assert_array_equal(round_ties(x, Rounding.HALF_EVEN), [-2, -2, 0, 0, 2, 2, 0])
    np.testing.assert_array_equal(round_ties(x, Rounding.HALF_AWAY), [-3, -2, -1, 1, 2, 3, 0])
    np.testing.assert_array_equal(round_ties(x, Rounding.HALF_UP, -3), [-2, -1, 0, 1, 2, 3, 1])
    np.testing.assert_array_equal(round_ties(x[3:], Rounding.HALF_UP), [1, 2, 3, 0])


def test_what_is_no_number_becomes_the_lowest_code() -> None:
    encoding = Encoding(QuantSpec.of("uint8"), np.asarray(0.5), np.asarray(10))
    x = np.asarray([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(quantize(x, encoding), [0, 255, 0])


def test_float8_saturates() -> None:
    encoding = Encoding(QuantSpec.of("float8e4m3fn"), np.asarray(2.0), np.asarray(0))
    x = np.asarray([1e9, -np.inf, 897, 1.0], np.float32)
    np.testing.assert_array_equal(fake_quantize(x, encoding), [896, -896, 896, 1])


def test_biases_keep_all_bits() -> None:
    spec = QuantSpec.of("int32", symmetric=True)
    encoding = Encoding(spec, np.asarray(1.0), np.asarray(0))
    x = np.asarray([2**30 + 64, 16777217, -(2.0**31), 2.0**32], np.float32)
    np.testing.assert_array_equal(quantize(x, encoding), [2**30, 16777216, -(2**31), 2**31 - 1])


@pytest.mark.parametrize("bits", range(24, 33))
def test_wide_codes_stay_in_their_range(bits: int) -> None:
    encoding = Encoding(QuantSpec.of(f"int{bits}", symmetric=True), np.asarray(1.0), np.asarray(0))
    x = np.asarray([2.0 ** (bits + 1), -(2.0 ** (bits + 1)), 2.0**22 - 1], np.float32)
    np.testing.assert_array_equal(quantize(x, encoding), [2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2**22 - 1])


# -- the same as ONNX ------------------------------------------------------------------------------


def qdq_model(encoding: Encoding) -> ModelProto:
    """QuantizeLinear and DequantizeLinear with the numbers of ``encoding``; outputs codes and values."""
    granularity, kind = encoding.spec.granularity, encoding.spec.format.onnx_type
    attributes = {}
    if isinstance(granularity, PerChannel):
        attributes = {"axis": granularity.axis}
    elif isinstance(granularity, PerBlock):
        attributes = {"axis": granularity.axis, "block_size": granularity.size}
    codes = encoding.zero_point.astype(helper.tensor_dtype_to_np_dtype(kind))
    weights = [numpy_helper.from_array(encoding.scale, "s"), numpy_helper.from_array(codes, "z")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
        helper.make_node("Cast", ["q"], ["c"], to=TensorProto.INT32),
    ]
    outputs = [helper.make_tensor_value_info("c", TensorProto.INT32, SHAPE), floats("y", *SHAPE)]
    return model_of(nodes, [floats("x", *SHAPE)], outputs, weights)


STORED = tuple(f"{sign}int{bits}" for bits in (4, 8, 16) for sign in ("", "u"))


def assume_comparable(x: np.ndarray, encoding: Encoding) -> None:
    """Neither implementation leaves codes out, and both convert the quotient to int32 before they clip it."""
    assume(not encoding.spec.narrow)
    assume((np.abs(x) / spread(encoding.scale, encoding, SHAPE) < 2.0**30).all())


@given(tensors(), encodings(STORED))
def test_integers_are_those_of_the_onnx_reference(x: np.ndarray, encoding: Encoding) -> None:
    assume_comparable(x, encoding)
    codes, values = ReferenceEvaluator(qdq_model(encoding)).run(None, {"x": x})
    np.testing.assert_array_equal(quantize(x, encoding), codes)
    np.testing.assert_array_equal(fake_quantize(x, encoding), values)


@given(tensors(), encodings(STORED))
def test_integers_are_those_of_onnx_runtime(x: np.ndarray, encoding: Encoding) -> None:
    assume_comparable(x, encoding)
    results = run_model(qdq_model(encoding), {"x": x})
    np.testing.assert_array_equal(quantize(x, encoding), results["c"])
    np.testing.assert_array_equal(fake_quantize(x, encoding), results["y"])


@given(tensors(), encodings(("float8e4m3fn", "float8e5m2")))
def test_float8_is_that_of_the_onnx_reference(x: np.ndarray, encoding: Encoding) -> None:
    assume(isinstance(encoding.spec.granularity, PerTensor | PerChannel))
    model = qdq_model(encoding)
    del model.graph.node[2], model.graph.output[0]
    (values,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(fake_quantize(x, encoding), values)


@given(hnp.arrays(np.float32, SHAPE, elements=st.floats(width=32, allow_nan=False)))
def test_16_bit_floats_are_casts(x: np.ndarray) -> None:
    for name, dtype in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        encoding = Encoding(QuantSpec.of(name), np.ones(()), np.zeros(()))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(fake_quantize(x, encoding), x.astype(dtype).astype(np.float32))


# -- specs, formats and shapes ---------------------------------------------------------------------


@pytest.mark.parametrize("text", [*INTEGERS, *FLOATS, "int17", "int32"])
def test_formats_are_read_as_they_are_written(text: str) -> None:
    assert str(parse_format(text)) == text


@pytest.mark.parametrize(
    "text", ["int1", "int33", "uint17", "uint31", "uint32", "int", "float32", "fp16", "", "Int8", "int08x"]
)
def test_unknown_formats(text: str) -> None:
    with pytest.raises(UsageError):
        parse_format(text)


@given(tensors(), st.sampled_from([17, 20, 24, 31]))
def test_more_bits_than_a_float_has_change_nothing(x: np.ndarray, bits: int) -> None:
    spec = QuantSpec.of(f"int{bits}", symmetric=True)
    scale = np.float32(max(np.abs(x).max(), 1e-3)) / np.float32(2 ** (bits - 1) - 1)
    encoding = Encoding(spec, np.asarray(scale), np.asarray(0))
    near = np.maximum(0.51 * scale, np.abs(x) * np.float32(2**-21))
    assert (np.abs(fake_quantize(x, encoding) - x) <= near).all()
    np.testing.assert_array_equal(dequantize(quantize(x, encoding), encoding), fake_quantize(x, encoding))


def test_storage_types() -> None:
    expected = {"int3": "INT4", "uint2": "UINT2", "uint7": "UINT8", "int9": "INT16", "int32": "INT32"}
    for text, name in expected.items():
        assert TensorProto.DataType.Name(parse_format(text).onnx_type) == name


def test_specs_as_text() -> None:
    spec = QuantSpec.of("int4", symmetric=True, narrow=True, granularity=PerBlock(0, 32))
    assert str(spec) == "int4 symmetric narrow block(0,32)"
    assert str(QuantSpec.of("uint8", fixed_range=(0.0, 1.0))) == "uint8 asymmetric range(0.0, 1.0)"
    assert str(QuantSpec.of("int32", symmetric=True, derived=True)) == "int32 symmetric derived"
    assert str(QuantSpec.of("float16")) == "float16"


def test_narrow_leaves_out_the_lowest_code() -> None:
    assert QuantSpec.of("int8", narrow=True).code_range == (-127, 127)
    assert QuantSpec.of("uint4").code_range == (0, 15)
    with pytest.raises(UsageError, match="float16 has no integer codes"):
        _ = QuantSpec.of("float16").code_range


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_is_finite_and_positive(scale: float) -> None:
    with pytest.raises(UsageError, match="every scale must be finite and above zero"):
        Encoding(QuantSpec.of("int8"), np.asarray(scale), np.asarray(0))


def test_scale_and_zero_point_have_one_shape() -> None:
    with pytest.raises(UsageError, match="differ in shape"):
        Encoding(QuantSpec.of("int8"), np.ones(3), np.zeros(()))


def test_granularity_must_fit() -> None:
    wrong = {
        PerChannel(0): (3, "do not fit axis 0"),
        PerChannel(2): (4, "axis 2 is outside a tensor of rank 2"),
        PerBlock(1, 4): ((4, 3), r"\(4, 2\) expected"),
    }
    for granularity, (shape, message) in wrong.items():
        spec = QuantSpec.of("int8", granularity=granularity)
        with pytest.raises(UsageError, match=message):
            fake_quantize(np.zeros(SHAPE, np.float32), Encoding(spec, np.ones(shape), np.zeros(shape)))


@given(tensors(), encodings())
def test_groups_and_scales_line_up(x: np.ndarray, encoding: Encoding) -> None:
    highest = reduce_groups(x, encoding.spec.granularity, np.max)
    assert highest.shape == encoding.scale.shape
    over = Encoding(encoding.spec, np.ones_like(encoding.scale), encoding.zero_point)
    assert (spread(highest, over, SHAPE) >= x).all()


@pytest.mark.parametrize(
    ("format", "zero_point"),
    [("uint8", 300), ("int4", -9), ("int8", 2.0**40), ("uint8", np.nan), ("float8e5m2", 1)],
)
def test_a_zero_point_outside_the_format_is_refused(format: str, zero_point: float) -> None:
    with pytest.raises(UsageError, match=f"every zero point of {format} must be"):
        Encoding(QuantSpec.of(format), np.asarray(1.0), np.asarray(zero_point))
