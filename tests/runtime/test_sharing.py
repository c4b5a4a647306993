"""One pass over the data serves several compilations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.ir.executor import Feed, Observation
from qc.runtime import OrtExecutor
from qc.runtime.executors.sharing import SharingExecutor

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL = (
    """g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] w> { m = MatMul(x, w)  r = Relu(m)  y = Tanh(r) }"""
)

PASSES = "match-supergroups, insert-quantizers, annotate-per-channel, tie-quantizers, calibrate, insert-qdq"


class Counted:
    """Data that counts how often it is read."""

    def __init__(self, feeds: list[Feed]) -> None:
        self.feeds, self.passes = feeds, 0

    def __call__(self) -> Iterator[Feed]:
        self.passes += 1
        return iter(self.feeds)


def observed(
    executor: SharingExecutor, model: ModelProto, *names: str, histogram: bool = False
) -> list[float]:
    requests = dict.fromkeys(names, Observation(histogram=histogram))
    found = executor.observe(model, requests, random_feeds(model))
    return [float(statistics.maximum) for statistics in found.values()]


def test_what_is_planned_is_observed_at_once() -> None:
    model = parse(MODEL)
    executor = SharingExecutor(OrtExecutor(threads=1))
    for names in (("x", "m"), ("m", "r")):
        executor.plan(lambda names=names: observed(executor, model, *names))
    assert executor.passes == 0
    assert observed(executor, model, "x", "m") == observed(SharingExecutor(OrtExecutor()), model, "x", "m")
    assert observed(executor, model, "m", "r") == observed(SharingExecutor(OrtExecutor()), model, "m", "r")
    assert executor.passes == 1


def test_what_was_not_planned_is_observed_when_asked_for() -> None:
    model = parse(MODEL)
    executor = SharingExecutor(OrtExecutor(threads=1))
    observed(executor, model, "x")
    observed(executor, model, "y")
    observed(executor, model, "y", histogram=True)
    assert executor.passes == 3
    observed(executor, model, "x", "y")
    assert executor.passes == 3


def test_channels_are_not_taken_for_the_whole_tensor() -> None:
    model, axis = parse(MODEL), Observation(axis=1)
    executor = SharingExecutor(OrtExecutor(threads=1))
    observed(executor, model, "x")
    for _ in range(2):
        found = executor.observe(model, {"x": axis}, random_feeds(model))
        assert found["x"].minimum.shape == (4,)
    assert executor.passes == 2


def test_models_with_other_weights_are_told_apart() -> None:
    model, other = parse(MODEL), parse(MODEL)
    other.graph.initializer[0].raw_data = np.zeros((4, 4), np.float32).tobytes()
    executor = SharingExecutor(OrtExecutor(threads=1))
    assert observed(executor, model, "m") != [0.0]
    assert observed(executor, other, "m") == [0.0]


def test_one_calibration_serves_all_targets() -> None:
    data = Counted(random_feeds(qc.read_model(FIXTURES / "digits_cnn.onnx").origin, 4))
    targets = ["ort-cpu", "tensorrt", "qnn-htp"]
    results = qc.compile_for(FIXTURES / "digits_cnn.onnx", targets, PASSES, data=data, threads=1)
    assert data.passes == 1
    assert list(results) == targets
    for name, result in results.items():
        alone = qc.compile(FIXTURES / "digits_cnn.onnx", PASSES, data=data, target=name, threads=1)
        assert [node.op_type for node in result.model.graph.node] == [
            n.op_type for n in alone.model.graph.node
        ]
        for quantizer, other in zip(result.ir.quant.quantizers(), alone.ir.quant.quantizers(), strict=True):
            assert quantizer.encoding is not None and other.encoding is not None
            np.testing.assert_allclose(quantizer.encoding.scale, other.encoding.scale, rtol=1e-5)
        assert not any("read again" in note for note in result.notes)


def _op_types(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_methods_that_look_at_single_feeds_say_that_they_read_again() -> None:
    model = parse(MODEL)
    passes = "match-supergroups, insert-quantizers, calibrate-as-aimet{method=sqnr}, insert-qdq"
    results = qc.compile_for(model, ["ort-cpu", "openvino"], passes, data=random_feeds(model))
    assert not results["ort-cpu"].notes
    assert any("the data was read again for openvino" in note for note in results["openvino"].notes)
