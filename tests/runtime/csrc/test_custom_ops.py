"""The operator "FakeQuantize" inside ONNX Runtime sessions, on the CPU and on a GPU where there is one.

The kernels for CUDA also run where there is none, compiled for the processor; see support/cuda_on_host.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.operator_sessions import grid, quantizer_session, session_of

from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.runtime.native import kernels

pytestmark = pytest.mark.usefixtures("implementation")


def reference(x: np.ndarray, encoding: Encoding, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    with np.errstate(all="ignore"):
        return arithmetic.fake_quantize(x, encoding, rounding)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    bits = np.uint32 if actual.itemsize == 4 else np.uint16
    assert np.array_equal(actual.view(bits), expected.view(bits))


GRIDS = [
    grid("int8", 0.043, 5),
    grid("uint3", 0.5, 2),
    grid("int16", np.linspace(1e-3, 1, 7), np.arange(7), PerChannel(1)),
    grid("int4", np.full((5, 7, 3), 0.3), np.zeros((5, 7, 3)), PerBlock(-1, 4)),
    grid("float16", 1, 0),
    grid("bfloat16", 1, 0),
    grid("float8e4m3fn", 0.02, 0),
    grid("float8e5m2", 0.02, 0),
]


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("encoding", GRIDS, ids=lambda e: str(e.spec))
def test_fake_quantize_equals_the_definition(encoding: Encoding, rounding: Rounding) -> None:
    x = (np.random.default_rng(0).standard_normal((5, 7, 11)) * 6).astype(np.float32)
    session = quantizer_session(encoding, ["a", "b", "c"], rounding=rounding.value)
    assert_same_bits(session.run(None, {"x": x})[0], reference(x, encoding, rounding))


def test_scalars_and_empty_tensors() -> None:
    encoding = GRIDS[0]
    scalar = np.array(1.03, np.float32)
    assert_same_bits(quantizer_session(encoding, []).run(None, {"x": scalar})[0], reference(scalar, encoding))
    empty = np.zeros((0, 3), np.float32)
    assert quantizer_session(encoding, ["n", 3]).run(None, {"x": empty})[0].shape == (0, 3)


def test_sixteen_bit_inputs_are_rounded_back() -> None:
    x = (np.random.default_rng(1).standard_normal((5, 7, 11)) * 6).astype(np.float16)
    for encoding in GRIDS:
        session = quantizer_session(encoding, ["a", "b", "c"], TensorProto.FLOAT16)
        with np.errstate(over="ignore"):
            expected = reference(x, encoding).astype(np.float16)
        assert_same_bits(session.run(None, {"x": x})[0], expected)


def test_bfloat16_inputs_are_rounded_back() -> None:
    x = (np.random.default_rng(1).standard_normal((5, 7, 11)) * 6).astype(ml_dtypes.bfloat16)
    encoding = GRIDS[0]
    shape = ["a", "b", "c"]
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("FakeQuantize", ["narrow", "s", "z", "l"], ["rounded"], domain="qc"),
        helper.make_node("Cast", ["rounded"], ["y"], to=TensorProto.FLOAT),
    ]
    parameters = {"s": encoding.scale, "z": encoding.zero_point, "l": np.array([-128, 127], np.int32)}
    session = session_of(nodes, {"x": (TensorProto.FLOAT, shape)}, {"y": TensorProto.FLOAT}, parameters)
    expected = reference(x, encoding).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert_same_bits(session.run(None, {"x": x.astype(np.float32)})[0], expected)


def test_a_scale_of_zero_switches_the_quantizer_off() -> None:
    x = np.array([0.123, np.nan, -7.7, np.inf], np.float32)
    session = quantizer_session(GRIDS[0], ["n"], overridable=True)
    assert_same_bits(session.run(None, {"x": x, "scale": np.array(0, np.float32)})[0], x)


@pytest.mark.parametrize("limits", [(0.0, np.inf), (-1.5, 2.25), (-np.inf, 0.5)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_rounded_is_clamped_before(limits: tuple[float, float], dtype: type) -> None:
    x = (np.random.default_rng(4).standard_normal((5, 7, 11)) * 6).astype(dtype)
    x[0, 0, :2] = np.inf, -0.0
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    clamp = dict(zip(("minimum", "maximum"), limits, strict=True))
    for encoding in GRIDS:
        found = quantizer_session(encoding, ["a", "b", "c"], element, **clamp).run(None, {"x": x})[0]
        with np.errstate(over="ignore"):
            expected = reference(np.clip(x, *map(dtype, limits)), encoding).astype(dtype)
        assert_same_bits(found, expected)
    x[0, 0, 2] = np.nan
    session = quantizer_session(GRIDS[0], ["a", "b", "c"], element, overridable=True, **clamp)
    off = session.run(None, {"x": x, "scale": np.array(0, np.float32)})[0]
    assert np.array_equal(off, np.clip(x, *map(dtype, limits)), equal_nan=True)


def test_a_fed_grid_replaces_the_initializers() -> None:
    x = np.linspace(-20, 20, 101, dtype=np.float32)
    session = quantizer_session(GRIDS[0], ["n"], overridable=True)
    assert_same_bits(session.run(None, {"x": x})[0], reference(x, GRIDS[0]))
    other = grid("uint4", 0.7, 9)
    feed = {
        "x": x,
        "scale": other.scale,
        "zero_point": other.zero_point,
        "limits": np.array([0, 15], np.int32),
    }
    assert_same_bits(session.run(None, feed)[0], reference(x, other))


@pytest.mark.parametrize(
    "encoding",
    [
        GRIDS[0],
        grid("int8", np.linspace(0.01, 1, 1003), np.arange(1003) % 9, PerChannel(1)),
        grid("int8", np.full((129, 1003), 0.2), np.zeros((129, 1003)), PerBlock(0, 7)),
    ],
    ids=lambda e: str(e.spec),
)
def test_threads_do_not_change_the_result(encoding: Encoding) -> None:
    x = (np.random.default_rng(2).standard_normal((901, 1003)) * 6).astype(np.float32)
    results = [
        quantizer_session(encoding, [901, 1003], threads=threads).run(None, {"x": x})[0] for threads in (1, 4)
    ]
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], reference(x, encoding))


def test_memory_is_reused_without_harm_to_other_readers() -> None:
    encoding = GRIDS[0]
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("FakeQuantize", ["n", "s", "z", "l"], ["first"], domain="qc"),
        helper.make_node("FakeQuantize", ["first", "s2", "z", "l"], ["second"], domain="qc"),
        helper.make_node("Sub", ["n", "second"], ["y"]),
    ]
    coarse = grid("int8", 0.9, encoding.zero_point)
    parameters = {
        "s": encoding.scale,
        "s2": coarse.scale,
        "z": encoding.zero_point,
        "l": np.array([-128, 127], np.int32),
    }
    session = session_of(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": TensorProto.FLOAT}, parameters)
    x = np.linspace(-9, 9, 1001, dtype=np.float32)
    assert_same_bits(session.run(None, {"x": x})[0], -x - reference(reference(-x, encoding), coarse))


def quantize_dequantize(format: str, encoding: Encoding, axis: int | None) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime's own QuantizeLinear and DequantizeLinear, on the CPU."""
    zero_point = helper.make_tensor(
        "z", parse_format(format).onnx_type, encoding.zero_point.shape, encoding.zero_point.ravel().tolist()
    )
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    return session_of(
        nodes,
        {"x": (TensorProto.FLOAT, ["n", "c"])},
        {"y": TensorProto.FLOAT},
        {"s": encoding.scale, "z": zero_point},
        provider="cpu",
    )


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["int8", "uint8", "int16", "uint16", "int4", "uint4"]),
    st.booleans(),
    st.floats(2**-100, 2**90, width=32),
    st.integers(0, 2**32 - 1),
)
def test_equals_quantize_and_dequantize_linear(format: str, channels: bool, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    integer = parse_format(format)
    assert isinstance(integer, IntFormat)
    size = (7,) if channels else ()
    granularity = PerChannel(1) if channels else PerTensor()
    encoding = Encoding(
        QuantSpec(integer, granularity=granularity),
        (rng.uniform(0.5, 1, size) * scale).astype(np.float32),
        rng.integers(integer.lowest, integer.highest + 1, size),
    )
    ties = rng.integers(-(2 ** (integer.bits + 1)), 2 ** (integer.bits + 1), (64, 7)) / 2 * encoding.scale
    x = ties.astype(np.float32)
    x[::3] = np.nextafter(x[::3], np.float32(np.inf))
    if integer.bits > 4:  # ONNX Runtime turns infinity into the lowest 4-bit code, against the standard
        x[::7, 3], x[1::7, 3] = np.inf, -np.inf
    own = quantizer_session(encoding, ["n", "c"]).run(None, {"x": x})[0]
    theirs = quantize_dequantize(format, encoding, 1 if channels else None).run(None, {"x": x})[0]
    assert_same_bits(own, theirs)


def session_of_fed_grids() -> tuple[onnxruntime.InferenceSession, dict[str, np.ndarray]]:
    """A session of one quantizer that is fed its grid, and a feed that fits."""
    node = helper.make_node("FakeQuantize", ["x", "scale", "zero_point", "limits"], ["y"], domain="qc")
    inputs = {
        "x": (TensorProto.FLOAT, ["n"]),
        "scale": (TensorProto.FLOAT, ["s"]),
        "zero_point": (TensorProto.INT32, ["z"]),
        "limits": (TensorProto.INT32, ["l"]),
    }
    feed = {
        "x": np.zeros(3, np.float32),
        "scale": np.ones(1, np.float32),
        "zero_point": np.zeros(1, np.int32),
        "limits": np.array([-8, 7], np.int32),
    }
    return session_of([node], inputs, {"y": TensorProto.FLOAT}), feed


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"scale": np.ones(2, np.float32)}, r"scale has shape \(2,\) but zero_point has shape \(1,\)"),
        (
            {"scale": np.ones(2, np.float32), "zero_point": np.zeros(2, np.int32)},
            "one for the tensor is needed",
        ),
        ({"limits": np.array([5], np.int32)}, "limits must hold two codes"),
    ],
)
def test_a_grid_of_a_wrong_shape_is_an_error_in_one_sentence(
    feed: dict[str, np.ndarray], message: str
) -> None:
    session, good = session_of_fed_grids()
    session.run(None, good)
    with pytest.raises(Exception, match=message):
        session.run(None, good | feed)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (
            {"scale": np.array([-1], np.float32)},
            "scale holds -1.0+ but every scale must be finite and above zero",
        ),
        ({"scale": np.array([np.nan], np.float32)}, "finite and above zero"),
        ({"scale": np.array([np.inf], np.float32)}, "finite and above zero"),
        ({"zero_point": np.array([2**30], np.int32)}, "which float32 cannot count"),
        ({"limits": np.array([5, -5], np.int32)}, "limits must hold two codes"),
        ({"limits": np.array([-(2**31), 2**31 - 1], np.int32)}, "which float32 cannot count"),
    ],
)
def test_wrong_numbers_in_a_grid_are_an_error_or_give_nan_on_a_gpu(
    feed: dict[str, np.ndarray], message: str, implementation: str
) -> None:
    session, good = session_of_fed_grids()
    if implementation == "cpu":
        with pytest.raises(Exception, match=message):
            session.run(None, good | feed)
    else:
        assert np.isnan(session.run(None, good | feed)[0]).all()


@pytest.mark.parametrize("format", ["int8", "float16", "bfloat16", "float8e4m3fn"])
def test_on_a_gpu_one_wrong_scale_spoils_its_channel_only(format: str, implementation: str) -> None:
    if implementation == "cpu":
        pytest.skip("on the CPU this is an error")
    encoding = grid(format, np.ones(3), np.zeros(3), PerChannel(1))
    session = quantizer_session(encoding, [2, 3, 5], overridable=True)
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    spoiled = session.run(None, {"x": x, "scale": np.array([1, -1, 1], np.float32)})[0]
    assert np.isnan(spoiled[:, 1]).all()
    assert_same_bits(spoiled[:, ::2].copy(), reference(x, encoding)[:, ::2].copy())


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("encoding", GRIDS, ids=lambda e: str(e.spec))
def test_ties_and_special_numbers_equal_the_kernel(encoding: Encoding, rounding: Rounding) -> None:
    ties = np.random.default_rng(4).integers(-40, 40, (5, 7, 11)) / 2 * encoding.scale.ravel()[0]
    x = ties.astype(np.float32)
    x.ravel()[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e-45, -3e38]
    found = quantizer_session(encoding, ["a", "b", "c"], rounding=rounding.value).run(None, {"x": x})[0]
    expected = kernels.fake_quantize(x, encoding, rounding)
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    assert same.all()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"granularity": "row"}, "granularity is 'row' but must be one of tensor, channel, block"),
        ({"rounding": "up"}, "rounding is 'up' but must be one of half-even, half-away, half-up"),
        ({"format": "float7"}, "format is 'float7' but must be one of int, float16"),
        ({"granularity": "block", "block_size": 0}, "block_size is 0 but must be at least 1"),
    ],
)
def test_a_wrong_attribute_is_an_error_when_the_session_is_made(
    attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        quantizer_session(GRIDS[0], ["n"], **attributes)


def test_a_wrong_axis_is_an_error() -> None:
    session = quantizer_session(GRIDS[0], ["n"], granularity="channel", axis=1)
    with pytest.raises(Exception, match=r"axis is 1, outside a tensor of shape \(3,\)"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_other_element_types_are_refused_when_the_session_is_made() -> None:
    with pytest.raises(Exception, match="double"):
        quantizer_session(GRIDS[0], ["n"], TensorProto.DOUBLE)
