"""``quantize_static`` with ONNX Runtime's signature."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.quantization
import pytest
from onnx import ModelProto, numpy_helper
from support.graph_text import build_model

import qc
import qc.compat.onnxruntime as ours
from qc.compat.onnxruntime import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantType,
    quantize_static,
)

from .networks import Feed, feeds, network

PERCENTILE = {"calibrate_method": CalibrationMethod.Percentile}


class Reader(CalibrationDataReader):
    """ONNX Runtime's interface for data."""

    def __init__(self) -> None:
        self._feeds = iter(feeds())

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def quantized(folder: Path, **arguments: Any) -> ModelProto:
    """The network after ``quantize_static``; ONNX Runtime runs it, and it is near the float model."""
    path = folder / "model.q.onnx"
    quantize_static(network(), path, Reader(), **arguments)
    feed = feeds()[0]
    (found,) = ort.InferenceSession(path).run(None, feed)
    (exact,) = ort.InferenceSession(network().SerializeToString()).run(None, feed)
    assert np.abs(found - exact).max() < 0.15 * np.abs(exact).max()
    return onnx.load(path)


def tensors(model: ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_the_signature_is_that_of_onnxruntime() -> None:
    theirs = inspect.signature(onnxruntime.quantization.quantize_static).parameters
    ours = inspect.signature(quantize_static).parameters
    common = [name for name in theirs if name in ours]  # other versions have one more or one less
    assert len(common) >= 15
    for name in set(common) - {"calibration_data_reader"}:
        assert ours[name].default == theirs[name].default


def test_defaults_are_signed_and_per_tensor(tmp_path: Path) -> None:
    found = tensors(quantized(tmp_path))
    assert found["x_zero_point"].dtype == np.int8 and found["conv.weight_scale"].shape == ()
    assert (found["conv.weight_zero_point"] == 0).all()


def test_formats_and_channels(tmp_path: Path) -> None:
    model = quantized(
        tmp_path, per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8
    )
    found = tensors(model)
    assert found["x_zero_point"].dtype == np.uint8
    assert found["conv.weight_scale"].shape == (4,) and found["fc.weight_scale"].shape == (10,)


def test_seven_bits(tmp_path: Path) -> None:
    codes = tensors(quantized(tmp_path, reduce_range=True))["conv.weight_quantized"]
    assert 48 < np.abs(codes.astype(int)).max() <= 64


def test_symmetric_activations(tmp_path: Path) -> None:
    model = quantized(tmp_path, extra_options={"ActivationSymmetric": True})
    assert tensors(model)["x_zero_point"] == 0


@pytest.mark.parametrize(
    "choice",
    [
        {"op_types_to_quantize": ["Gemm"]},
        {"nodes_to_quantize": ["fc"]},
        {"nodes_to_exclude": ["conv"]},
    ],
)
def test_what_is_left_in_float(tmp_path: Path, choice: dict[str, list[str]]) -> None:
    found = tensors(quantized(tmp_path, **choice))
    assert "conv.weight" in found and "fc.weight_quantized" in found


def test_percentile(tmp_path: Path) -> None:
    clipped = quantized(tmp_path, **PERCENTILE, extra_options={"CalibPercentile": 95.0})
    assert tensors(clipped)["x_scale"] < tensors(quantized(tmp_path))["x_scale"] * 0.9


def test_overrides_of_a_range_and_a_type(tmp_path: Path) -> None:
    overrides = {
        "x": [{"quant_type": QuantType.QUInt8, "rmin": -4.0, "rmax": 6.2}],
        "fc.weight": [{"symmetric": False}],
    }
    found = tensors(quantized(tmp_path, extra_options={"TensorQuantOverrides": overrides}))
    assert found["x_zero_point"].dtype == np.uint8
    np.testing.assert_allclose(found["x_scale"], 10.2 / 255, rtol=1e-6)
    np.testing.assert_allclose(found["x_zero_point"], 100)


def test_overrides_of_the_numbers(tmp_path: Path) -> None:
    overrides = {
        "x": [{"scale": 0.03125, "zero_point": 3}],
        "conv.weight": [
            {"scale": 0.02 + 0.001 * channel, "zero_point": 0, "axis": 0} for channel in range(4)
        ],
    }
    found = tensors(quantized(tmp_path, extra_options={"TensorQuantOverrides": overrides}))
    assert (found["x_scale"], found["x_zero_point"]) == (0.03125, 3)
    np.testing.assert_allclose(found["conv.weight_scale"], [0.02, 0.021, 0.022, 0.023])
    np.testing.assert_allclose(found["conv.bias_scale"], 0.03125 * found["conv.weight_scale"])


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        ({"z": [{}]}, "no tensor 'z'"),
        ({"c": [{}]}, "'c' is not quantized: "),
        ({"x": []}, "a list of dictionaries"),
        ({"x": [{"scal": 1.0}]}, r"no setting 'scal' \(did you mean 'scale'"),
        ({"x": [{"scale": 1.0}]}, "both scale and zero_point"),
        ({"x": [{"scale": 1.0, "zero_point": 0, "rmin": 0.0}]}, "next to which no range"),
        ({"x": [{"convert": {}}]}, "'convert' of 'x' is not part of"),
        ({"x": [{"rmin": 0.0}, {"rmin": 1.0}]}, "2 entries do not fit 'x'"),
        ({"x": [{"axis": 0}]}, "'x' is computed"),
        ({"x": [{"rmin": 4.0, "rmax": -4.0}]}, "'rmin' of 'x', 4.0, is above its 'rmax'"),
        ({"x": [{"rmin": float("nan")}]}, "'rmin' of 'x' is a finite number, not nan"),
        ({"x": [{"rmax": "a"}]}, "'rmax' of 'x' is a finite number, not 'a'"),
        ({"x": [{"scale": 0.0, "zero_point": 0}]}, "'scale' of 'x' is above 0"),
        ({"x": [{"scale": 0.1, "zero_point": 300}]}, "'zero_point' of 'x' is from -128 to 127"),
    ],
)
def test_overrides_that_are_wrong(tmp_path: Path, overrides: dict[str, Any], sentence: str) -> None:
    with pytest.raises(qc.UsageError, match=sentence):
        quantized(tmp_path, extra_options={"TensorQuantOverrides": overrides})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"calibrate_method": CalibrationMethod.Distribution}, "use MinMax, Percentile or Entropy"),
        ({"calibration_providers": ["ROCMExecutionProvider"]}, "the provider 'ROCMExecutionProvider' is not"),
        ({"calibration_cache_path": "cache.json"}, "calibration_cache_path"),
        ({"extra_options": {"SmoothQuantAlpha": 0.7}}, "'SmoothQuantAlpha' with the value 0.7"),
        ({"extra_options": {"ActivationSymetric": True}}, "did you mean 'ActivationSymmetric'"),
        ({"extra_options": {"CalibPercentile": 99.0}}, "needs calibrate_method"),
        (PERCENTILE | {"extra_options": {"CalibMovingAverage": True}}, "CalibrationMethod.MinMax"),
        (PERCENTILE | {"extra_options": {"CalibPercentile": 200}}, "up to 100, not 200"),
        ({"extra_options": {"MinimumRealRange": "small"}}, "a number of at least 0, not 'small'"),
        ({"extra_options": {"ActivationSymmetric": "False"}}, "True or False, not 'False'"),
        ({"extra_options": ["ActivationSymmetric"]}, "are a dictionary, not a 'list'"),
        ({"extra_options": {"TensorQuantOverrides": ["x"]}}, "a list for each tensor, not a 'list'"),
        ({"nodes_to_exclude": "conv"}, "nodes_to_exclude is a list of names, not 'conv'"),
        ({"weight_type": QuantType.QFLOAT8E4M3FN}, "QFLOAT8E4M3FN' is not part of .*formats are of integers"),
        ({"op_types_to_quantize": ["Matmul"]}, "the model has no 'Matmul'"),
        ({"nodes_to_exclude": ["conv1"]}, r"no node 'conv1' \(did you mean 'conv'"),
        ({"nodes_to_quantize": ["conv1"]}, r"no 'conv1' \(did you mean 'conv'"),
        ({"activation_type": "QInt8"}, "QuantType.QInt8"),
    ],
)
def test_arguments_that_are_not_provided(tmp_path: Path, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(qc.UsageError, match=sentence):
        quantized(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_options_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    quantized(tmp_path, extra_options={"SmoothQuant": False, "ForceQuantizeNoInputCheck": True})


def test_each_reader_has_a_pair_of_its_own_if_asked(tmp_path: Path) -> None:
    """Two convolutions and a sum read the same tensor, which is an output as well."""
    random = np.random.default_rng(0)
    constants = {name: random.normal(size=(16, 16, 3, 3)) / 12 for name in ("v", "w")}
    body = """
    r = Relu(x)
    a = Conv<pads=[1,1,1,1]>(r, v)
    b = Conv<pads=[1,1,1,1]>(r, w)
    s = Add(a, b)
    y = Add(s, r)
    """
    model = build_model(body, "y r", "float[1,16,16,16] x", constants=constants)
    data = [{"x": random.normal(size=(1, 16, 16, 16)).astype(np.float32)} for _ in range(4)]
    made = {}
    for dedicated in (False, True):
        path = tmp_path / f"{dedicated}.onnx"
        options = {"DedicatedQDQPair": dedicated}
        quantize_static(model, path, data, activation_type=QuantType.QUInt8, extra_options=options)
        made[dedicated] = onnx.load(path)
    onnx.checker.check_model(made[True], full_check=True)
    most = {key: max(pair_readers(one).values()) for key, one in made.items()}
    assert most[False] > 1 and most[True] == 1
    shared, dedicated = (
        ort.InferenceSession(one.SerializeToString()).run(None, data[0]) for one in made.values()
    )
    for one, other in zip(shared, dedicated, strict=True):
        np.testing.assert_array_equal(one, other)


def pair_readers(model: ModelProto) -> Counter[str]:
    """How many ops read what a QuantizeLinear and a DequantizeLinear made, by its name."""
    codes = {node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    pairs = {node.output[0] for node in model.graph.node if node.input[0] in codes}
    return Counter(name for node in model.graph.node for name in set(node.input) & pairs)


def test_biases_stay_float_if_asked(tmp_path: Path) -> None:
    assert "conv.bias_quantized" in tensors(quantized(tmp_path))
    found = tensors(quantized(tmp_path, extra_options={"QuantizeBias": False}))
    assert "conv.bias" in found and "conv.bias_quantized" not in found


def test_weights_are_quantized_when_the_model_runs_if_asked(tmp_path: Path) -> None:
    model = quantized(tmp_path, extra_options={"AddQDQPairToWeight": True})
    assert tensors(model)["conv.weight"].dtype == np.float32
    assert "conv.weight" in {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}


def test_a_range_is_the_average_over_the_feeds_if_asked(tmp_path: Path) -> None:
    options = {"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.5, "ActivationSymmetric": True}
    found = tensors(quantized(tmp_path, extra_options=options))["x_scale"]
    lows, highs = ([getattr(feed["x"], end)() for feed in feeds()] for end in ("min", "max"))
    np.testing.assert_allclose(found, max(-np.mean(lows), np.mean(highs)) / 127.5, rtol=0.01)


def test_nothing_to_quantize_and_no_data(tmp_path: Path) -> None:
    with pytest.raises(qc.CoverageError, match="nothing was quantized"):
        quantized(tmp_path, op_types_to_quantize=["Relu"])
    with pytest.raises(qc.UsageError, match="give calibration_data_reader"):
        quantize_static(network(), tmp_path / "model.q.onnx")
    with pytest.raises(ImportError, match=r"'onnxruntime\.quantization\.create_calibrator' is not part of"):
        from qc.compat.onnxruntime import create_calibrator  # noqa: F401


def test_every_name_is_there_or_told_of() -> None:
    """Modules of ONNX Runtime's package aside, which are imported by their own names."""
    theirs = vars(onnxruntime.quantization)
    names = [name for name, one in theirs.items() if not (name.startswith("_") or inspect.ismodule(one))]
    assert "TensorsData" in names
    for name in set(names) - set(ours.__all__):
        with pytest.raises(AttributeError, match=f"quantization.{name}' is not part of qc's"):
            getattr(ours, name)


def test_the_input_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    with pytest.raises(qc.UsageError, match="is the input model"):
        quantize_static(path, path, Reader())


def test_a_reader_that_fails_is_told_as_such(tmp_path: Path) -> None:
    class Failing(Reader):
        def get_next(self) -> Feed | None:
            raise ZeroDivisionError("no such file")

    with pytest.raises(qc.DataError, match="feed 0 failed with ZeroDivisionError: no such file"):
        quantize_static(network(), tmp_path / "model.q.onnx", Failing())
    with pytest.raises(qc.DataError, match=r"feed 0 failed with TypeError: .*get_next"):
        quantize_static(network(), tmp_path / "model.q.onnx", Reader)
