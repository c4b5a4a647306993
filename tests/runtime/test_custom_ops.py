"""The operators of the domain "qc" inside ONNX Runtime sessions, on the CPU and on a GPU where there is one.

The kernels for CUDA also run where there is none, compiled for the processor; see support/cuda_on_host.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.cuda_on_host import build_cuda_on_host

from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.runtime.native import kernels
from qc.runtime.native.library import library_path
from qc.runtime.sessions.providers import missing_for_cuda, session_providers

WHOLE = PerTensor()
STATISTICS = ["minimum", "maximum", "count", "nonfinite", "histogram"]


class Implementation(NamedTuple):
    """Which library all sessions of this file take their operators from, and where they run."""

    library: Path
    provider: str


running: Implementation


@pytest.fixture(params=["cpu", "cuda on host", "cuda"], scope="module", autouse=True)
def implementation(request: pytest.FixtureRequest) -> str:
    """What the sessions of this file run with."""
    global running
    name: str = request.param
    if name == "cuda" and missing_for_cuda():
        pytest.skip(f"CUDA cannot be used: {missing_for_cuda()}")
    library = build_cuda_on_host() if name == "cuda on host" else library_path(cuda=name == "cuda")
    running = Implementation(library, "cuda" if name == "cuda" else "cpu")
    return name


def grid(format: str, scale: Any, zero_point: Any, granularity: Granularity = WHOLE) -> Encoding:
    return Encoding(QuantSpec.of(format, granularity=granularity), np.asarray(scale), np.asarray(zero_point))


def session_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Mapping[str, int],
    initializers: Mapping[str, Any] | None = None,
    threads: int = 1,
    provider: str | None = None,
) -> onnxruntime.InferenceSession:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()],
        [helper.make_tensor_value_info(name, type, None) for name, type in outputs.items()],
        [
            value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value), name)
            for name, value in (initializers or {}).items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("qc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(running.library))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=session_providers(provider or running.provider),
        enable_fallback=0,
    )


def quantizer_session(
    encoding: Encoding,
    shape: Any,
    element: int = TensorProto.FLOAT,
    overridable: bool = False,
    threads: int = 1,
    **attributes: Any,
) -> onnxruntime.InferenceSession:
    spec = encoding.spec
    limits = spec.code_range if isinstance(spec.format, IntFormat) else (0, 0)
    described: dict[str, Any] = {}
    if isinstance(spec.granularity, PerChannel | PerBlock):
        described = {"granularity": "channel", "axis": spec.granularity.axis}
    if isinstance(spec.granularity, PerBlock):
        described |= {"granularity": "block", "block_size": spec.granularity.size}
    if not isinstance(spec.format, IntFormat):
        described |= {"format": spec.format.name}
    node = helper.make_node(
        "FakeQuantize", ["x", "scale", "zero_point", "limits"], ["y"], domain="qc", **(described | attributes)
    )
    inputs: dict[str, tuple[int, Any]] = {"x": (element, shape)}
    if overridable:
        inputs["scale"] = (TensorProto.FLOAT, encoding.scale.shape)
        inputs["zero_point"] = (TensorProto.INT32, encoding.zero_point.shape)
        inputs["limits"] = (TensorProto.INT32, [2])
    parameters = {
        "scale": encoding.scale,
        "zero_point": encoding.zero_point,
        "limits": np.array(limits, np.int32),
    }
    return session_of([node], inputs, {"y": element}, parameters, threads)


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


def observer_session(
    shape: Any, histogram: int, element: int = TensorProto.FLOAT, axis: int = -1, threads: int = 1
) -> onnxruntime.InferenceSession:
    names = STATISTICS[: 5 if histogram else 4]
    node = helper.make_node("Observe", ["x"], names, domain="qc", axis=axis, histogram=histogram)
    types = {name: TensorProto.FLOAT if name in STATISTICS[:2] else TensorProto.INT64 for name in names}
    return session_of([node], {"x": (element, shape)}, types, threads=threads)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("histogram", [0, 1])
def test_observe_equals_the_kernel(histogram: int, axis: int, threads: int) -> None:
    x = np.random.default_rng(3).standard_normal((1501, 703)).astype(np.float32)
    x[3, 4], x[700, 5], x[1500, 6] = np.nan, np.inf, -np.inf
    seen = observer_session(["a", "b"], histogram, axis=axis, threads=threads).run(None, {"x": x})
    expected = kernels.observe(x, bool(histogram), None if axis == -1 else axis)
    assert seen[0].shape == seen[1].shape == ((1,) if axis == -1 else (x.shape[axis],))
    assert np.array_equal(seen[0].reshape(expected.minimum.shape), expected.minimum)
    assert np.array_equal(seen[1].reshape(expected.maximum.shape), expected.maximum)
    assert (seen[2].tolist(), seen[3].tolist()) == ([x.size - 3], [3])
    if expected.histogram is not None:
        assert np.array_equal(seen[4], expected.histogram)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 17, 255, 256, 300]), min_size=1, max_size=4).filter(
        lambda shape: np.prod(shape) < 1e5
    ),
    st.integers(-1, 3),
    st.integers(0, 2**32 - 1),
)
def test_observe_takes_every_shape_and_every_magnitude(shape: list[int], axis: int, seed: int) -> None:
    axis = min(axis, len(shape) - 1)
    # Any pattern of bits: all magnitudes, subnormal numbers, both zeros, infinities and NaN.
    x = np.random.default_rng(seed).integers(0, 2**32, shape, np.uint32).view(np.float32)
    x.ravel()[::5] = 0
    x.ravel()[1::11] = -0.0
    seen = observer_session(shape, 1, axis=axis).run(None, {"x": x})
    expected = kernels.observe(x, True, None if axis == -1 else axis)
    assert np.array_equal(seen[0].reshape(expected.minimum.shape), expected.minimum)
    assert np.array_equal(seen[1].reshape(expected.maximum.shape), expected.maximum)
    assert (seen[2].tolist(), seen[3].tolist()) == ([expected.count], [expected.nonfinite])
    assert np.array_equal(seen[4], expected.histogram)


def test_observe_takes_half_floats_scalars_and_empty_tensors() -> None:
    half = np.array([1.5, -2.25, np.nan], np.float16)
    seen = observer_session(["n"], 1, TensorProto.FLOAT16).run(None, {"x": half})
    assert [value.tolist() for value in seen[:4]] == [[-2.25], [1.5], [2], [1]]
    assert np.flatnonzero(seen[4]).tolist() == [0x3FC0, 0xC010]
    seen = observer_session([], 1).run(None, {"x": np.array(3, np.float32)})
    assert [value.tolist() for value in seen[:4]] == [[3], [3], [1], [0]]
    seen = observer_session(["n"], 1).run(None, {"x": np.zeros(0, np.float32)})
    assert [value.tolist() for value in seen[:4]] == [[np.inf], [-np.inf], [0], [0]]
    assert not seen[4].any()


def test_a_histogram_is_only_made_if_the_model_takes_it() -> None:
    node = helper.make_node("Observe", ["x"], STATISTICS[:4], domain="qc", histogram=1)
    types = {
        name: TensorProto.FLOAT if name in STATISTICS[:2] else TensorProto.INT64 for name in STATISTICS[:4]
    }
    session = session_of([node], {"x": (TensorProto.FLOAT, ["n"])}, types)
    assert session.run(["count"], {"x": np.ones(3, np.float32)})[0].tolist() == [3]


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
    with pytest.raises(Exception, match="axis is 1, outside"):
        observer_session(["n"], 0, axis=1).run(None, {"x": np.zeros(3, np.float32)})


def test_other_element_types_are_refused_when_the_session_is_made() -> None:
    with pytest.raises(Exception, match="double"):
        quantizer_session(GRIDS[0], ["n"], TensorProto.DOUBLE)
