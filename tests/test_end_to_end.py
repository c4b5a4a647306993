"""The whole job on a trained network: compile, run, and compare the accuracy with that of the float model."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from support.folders import FIXTURES
from support.pipelines import PLACE, PREPARE, QUANTIZE, check

import qc
from qc.ir.onnx.lower import serialize
from qc.runtime import open_session, run_session

MODEL = FIXTURES / "digits_cnn.onnx"
# How much accuracy, as a share of all images, each pipeline may lose.
ALLOWED_LOSS = {"w8a8": 0.01, "w8a16": 0.01, "w4a8": 0.03, "w4a16": 0.03, "fp16": 0.01}
WEIGHTS_ALONE = {"w8": 0.01, "w8a8-dynamic": 0.01, "w4": 0.02, "w4-block32": 0.02, "w4-block128": 0.02}
ALL = ALLOWED_LOSS | WEIGHTS_ALONE


@functools.cache
def labelled() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FIXTURES / "digits_test.npz") as data:
        return data["image"], data["label"]


def calibration() -> Iterator[dict[str, np.ndarray]]:
    with np.load(FIXTURES / "digits_calibration.npz") as data:
        images = data["image"]
    for start in range(0, len(images), 16):
        yield {"image": images[start : start + 16]}


@functools.cache
def compiled(pipeline: str, target: str | None = None) -> qc.Compiled:
    return qc.compile(MODEL, pipeline, data=list(calibration()), target=target, threads=1)


def logits(model: ModelProto, optimize: bool = True) -> np.ndarray:
    images, _ = labelled()
    array: np.ndarray = run_session(open_session(model, optimize=optimize, threads=1), {"image": images})[0]
    return array


def accuracy(model: ModelProto) -> float:
    return float(np.mean(logits(model).argmax(axis=1) == labelled()[1]))


@functools.cache
def float_accuracy() -> float:
    return accuracy(onnx.load(str(MODEL)))


def test_the_float_model_is_worth_quantizing() -> None:
    assert float_accuracy() > 0.97


@pytest.mark.parametrize("pipeline", ALL)
def test_accuracy_of_the_pipelines_that_come_with_qc(pipeline: str) -> None:
    result = compiled(pipeline)
    check(result.model)
    assert accuracy(result.model) >= float_accuracy() - ALL[pipeline]
    assert accuracy(result.simulation) >= float_accuracy() - ALL[pipeline]


@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16", "w4a8", "w4a16"])
def test_accuracy_where_everything_is_quantized(pipeline: str) -> None:
    result = compiled(pipeline, "npu")
    assert not result.coverage.unquantized
    assert accuracy(result.simulation) >= float_accuracy() - ALLOWED_LOSS[pipeline]


def test_all_pipelines_are_tested() -> None:
    assert sorted([*ALL, "quantsim", "quantsim-qdq", "simplify", "legalize"]) == qc.pipeline_names()


@pytest.mark.parametrize(("pipeline", "target"), [("simplify", None), ("simplify,legalize", "qnn-htp")])
def test_what_pipelines_begin_with_computes_the_same_in_fewer_ops(pipeline: str, target: str | None) -> None:
    made = compiled(pipeline, target).model
    assert len(made.graph.node) < len(onnx.load(str(MODEL)).graph.node)
    np.testing.assert_allclose(logits(made), logits(onnx.load(str(MODEL))), atol=1e-4)


def test_accuracy_as_aimet_quantizes() -> None:
    assert accuracy(compiled("quantsim").simulation) >= float_accuracy() - 0.01
    assert accuracy(compiled("quantsim-qdq").model) >= float_accuracy() - 0.01


@pytest.mark.parametrize("method", ["min-max", "percentile", "mse"])
@pytest.mark.parametrize("weights", ["min-max", "mse"])
def test_ways_to_calibrate(method: str, weights: str) -> None:
    pipeline = f"{PREPARE},{PLACE},calibrate{{method={method} weights={weights}}},insert-qdq"
    assert accuracy(compiled(pipeline).model) >= float_accuracy() - 0.01


@pytest.mark.parametrize("pipeline", ALLOWED_LOSS)
def test_the_simulation_is_what_onnx_runtime_computes(pipeline: str) -> None:
    result = compiled(pipeline)
    simulated, real = logits(result.simulation, optimize=False), logits(result.model, optimize=False)
    output = result.ir.graph.outputs[0]
    assert output is not None
    quantizer = result.ir.quant.of_value(output)
    assert quantizer is None or quantizer.encoding is not None
    if quantizer is not None and quantizer.encoding is not None and pipeline != "fp16":
        step = float(quantizer.encoding.scale)
    else:
        step = float(np.spacing(np.float16(np.abs(real).max())))
    assert float(np.abs(simulated - real).max()) <= step * 1.0001


@pytest.mark.parametrize("pipeline", ALL)
def test_the_same_bytes_every_time(pipeline: str) -> None:
    again = qc.compile(MODEL, pipeline, data=calibration, threads=2)
    assert serialize(again.model) == serialize(compiled(pipeline).model)
    assert serialize(again.simulation) == serialize(compiled(pipeline).simulation)


def test_what_is_quantized() -> None:
    result = compiled("w8a8")
    ops = {op.op_type for op in result.ir.graph.ops()}
    assert "BatchNormalization" not in ops and "Conv" in ops
    assert result.coverage.ops["Conv"] == (10, 10)
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.count("QuantizeLinear") < kinds.count("DequantizeLinear")
    stored = {tensor.data_type for tensor in result.model.graph.initializer}
    assert {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32} <= stored
    assert result.model.ByteSize() < 0.6 * MODEL.stat().st_size


def test_the_model_that_was_given_is_not_changed() -> None:
    proto = onnx.load(str(MODEL))
    before = serialize(proto)
    result = qc.compile(proto, "w8a8", data=calibration, threads=1)
    assert serialize(proto) == before
    assert serialize(result.model) == serialize(compiled("w8a8").model)


def test_the_files(tmp_path: Path) -> None:
    written = qc.compile(MODEL, f"{QUANTIZE},insert-qdq,to-encodings", data=calibration, threads=1).save(
        tmp_path / "digits.onnx"
    )
    assert [path.name for path in written] == ["digits.onnx", "digits.encodings"]
    loaded = onnx.load(str(written[0]))
    check(loaded)
    assert accuracy(loaded) >= float_accuracy() - 0.01


def test_the_encodings() -> None:
    result = qc.compile(MODEL, f"{QUANTIZE},to-encodings", data=calibration, threads=1)
    document = json.loads(str(result.artifacts["encodings"].payload))
    assert document["version"] == "1.0.0"
    assert set(document) == {
        "version",
        "producer",
        "activation_encodings",
        "param_encodings",
        "quantizer_args",
    }
    values = {value.name: value for value in result.ir.graph.values()}
    for kind, constant in (("activation_encodings", False), ("param_encodings", True)):
        assert document[kind]
        for entry in document[kind]:
            assert {"name", "enc_type", "dtype", "bw", "is_sym", "scale", "offset"} <= set(entry)
            assert (values[entry["name"]].const is not None) == constant
            assert entry["dtype"] == "INT" and entry["bw"] == 8
            assert len(entry["scale"]) == len(entry["offset"])
            assert all(scale > 0 for scale in entry["scale"])
            assert all(-255 <= offset <= 0 for offset in entry["offset"])
            shape = values[entry["name"]].type.shape
            channels = {"PER_TENSOR": 1, "PER_CHANNEL": shape[0] if shape else None}[entry["enc_type"]]
            assert len(entry["scale"]) == channels
