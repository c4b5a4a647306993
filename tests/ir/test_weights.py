"""Quantized weights as objects, and codes in bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from onnx import TensorProto, numpy_helper
from support.folders import AIMET

import qc
from qc.ir import QuantSpec, lift, pack, quantize, unpack
from qc.ir.errors import UsageError
from qc.ir.facts.weights import QuantizedWeight
from qc.ir.quant.spec import Encoding
from qc.ir.tensor_ref import TensorRef
from qc.passes.encodings import encoding_of, located, read_encodings

FILES = sorted(AIMET.glob("*.encodings"), key=lambda path: path.name)
TYPES = {
    (2, True): TensorProto.INT2,
    (2, False): TensorProto.UINT2,
    (4, True): TensorProto.INT4,
    (4, False): TensorProto.UINT4,
}


@given(st.data(), st.sampled_from([2, 4]), st.booleans(), array_shapes(max_dims=3, max_side=7))
def test_packed_codes_are_those_of_onnx(
    data: st.DataObject, bits: int, signed: bool, shape: tuple[int, ...]
) -> None:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    codes = data.draw(arrays(np.int8 if signed else np.uint8, shape, elements=st.integers(low, high)))
    packed = pack(codes, bits)
    proto = TensorRef.from_array(codes, TYPES[bits, signed]).proto
    assert packed.tobytes() == proto.raw_data
    np.testing.assert_array_equal(unpack(packed, bits, signed, shape), codes)
    np.testing.assert_array_equal(numpy_helper.to_array(proto).astype(np.int8), codes)


def test_what_cannot_be_packed() -> None:
    with pytest.raises(UsageError, match="only codes of 2 and 4 bits are packed, not of 8"):
        pack(np.zeros(2, np.int8), 8)
    with pytest.raises(UsageError, match="codes from -9 to 0 do not fit 4 bits"):
        pack(np.asarray([-9, 0]), 4)
    with pytest.raises(UsageError, match=r"3 bytes do not hold 4-bit codes of the shape \[2, 2\]"):
        unpack(np.zeros(3, np.uint8), 4, True, (2, 2))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_codes_are_those_that_the_file_defines(path: Path) -> None:
    """``round(clamp(x, min, max) / scale - offset)``, in AIMET's terms and in float64."""
    weights = qc.read_weights(AIMET / "model.onnx", path)
    model = lift(AIMET / "model.onnx")
    for record in located(read_encodings(path), model).records:
        value = model.graph.value_named(record.name)
        if value is None or value.const is None or record.format.bits == 32:
            continue
        x = value.const.numpy().astype(np.float64)
        weight = weights[record.name]
        scale, low, high = (
            _aligned(numbers, weight) for numbers in (weight.scale, record.minimum, record.maximum)
        )
        if record.granularity == "two-level":
            low, high = -8 * scale, 7 * scale
        codes = np.rint(np.clip(x, low, high) / scale - record.offset.ravel()[0])
        np.testing.assert_array_equal(codes, weight.int_data.astype(np.int64) - record.format.lowest)
        np.testing.assert_allclose(
            weight.dequantize(), scale * (codes + record.offset.ravel()[0]), rtol=1e-6, atol=1e-12
        )


def _aligned(numbers: np.ndarray, weight: QuantizedWeight) -> np.ndarray:
    """Scales or limits, one for each element of the weight."""
    numbers = np.asarray(numbers, np.float64)
    if weight.granularity == "channel":
        return numbers.reshape([-1 if i == weight.axis else 1 for i in range(len(weight.shape))])
    if weight.block_size is not None and numbers.ndim == len(weight.shape):
        return np.repeat(numbers, weight.block_size, weight.axis)
    return numbers


def test_the_two_levels_are_one_scale() -> None:
    record = located(read_encodings(AIMET / "lpbq_1.0.0.encodings"), lift(AIMET / "model.onnx")).by_name()[
        "w1"
    ]
    encoding = encoding_of(record, (4, 8, 1, 1))
    assert encoding.scale.shape == (4, 2, 1, 1)
    with pytest.raises(
        UsageError, match=r"'f': 'w1' has scales of the shape .* its tensor needs \[4, 3, 1, 1\]"
    ):
        encoding_of(record, (4, 12, 1, 1), "'f'")
    with pytest.raises(UsageError, match="'w1' has 4 scales, but is no weight with a known axis"):
        encoding_of(read_encodings(AIMET / "channel_1.0.0.encodings").by_name()["w1"])


def test_a_plain_array_on_the_grid_of_a_file() -> None:
    record = read_encodings(AIMET / "channel_1.0.0.encodings").by_name()["x"]
    encoding = encoding_of(record)
    assert quantize(np.float32(-1e9), encoding) == 0 and quantize(np.float32(1e9), encoding) == 255


def weight_of(format: str, scale: object, array: np.ndarray) -> QuantizedWeight:
    scales = np.asarray(scale, np.float32)
    encoding = Encoding(QuantSpec.of(format), scales, np.zeros(scales.shape, np.int32))
    return QuantizedWeight("w", TensorRef.from_array(array), encoding)


@pytest.mark.parametrize(
    ("format", "dtype", "bytes_"),
    [
        ("int2", np.int8, 2),
        ("uint4", np.uint8, 3),
        ("int6", np.int8, 6),
        ("int8", np.int8, 6),
        ("int16", np.int16, 12),
        ("int32", np.int32, 24),
    ],
)
def test_codes_have_the_narrowest_type(format: str, dtype: type, bytes_: int) -> None:
    weight = weight_of(format, 1.0, np.asarray([[0, 1, 1], [0, 0, 1]], np.float32))
    assert weight.int_data.dtype == dtype and weight.packed.nbytes == bytes_
    np.testing.assert_array_equal(weight.int_data, weight.source.numpy())
    np.testing.assert_array_equal(weight.qdata, weight.int_data)
    assert (weight.axis, weight.block_size, weight.granularity) == (None, None, "tensor")


def test_float_codes_are_no_integers() -> None:
    weight = weight_of("float8e4m3fn", 0.5, np.asarray([1.0, -2.0], np.float32))
    assert weight.qdata.astype(np.float32).tolist() == [2.0, -4.0] and weight.packed.nbytes == 2
    np.testing.assert_array_equal(weight.dequantize(), [1.0, -2.0])
    with pytest.raises(UsageError, match="'w' is float8e4m3fn, which has no integer codes; use qdata"):
        _ = weight.int_data
