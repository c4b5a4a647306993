"""What was collected serves several compilations, and later ones without data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto
from support.folders import FIXTURES
from support.models import parse, random_feeds

import qc
from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Feed, Observation
from qc.runtime import OrtExecutor, RecordedExecutor, Recorder, Recording, load_data, model_inputs

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


def observed(executor: Recorder, model: ModelProto, *names: str, histogram: bool = False) -> list[float]:
    requests = dict.fromkeys(names, (Observation("histogram" if histogram else "range"),))
    found = executor.observe(model, requests, random_feeds(model))
    return [float(statistics.maximum) for statistics in found.values()]


def test_what_is_planned_is_observed_at_once() -> None:
    model = parse(MODEL)
    executor = Recorder(OrtExecutor(threads=1))
    for names in (("x", "m"), ("m", "r")):
        executor.plan(lambda names=names: observed(executor, model, *names))
    assert executor.passes == 0
    assert observed(executor, model, "x", "m") == observed(Recorder(OrtExecutor()), model, "x", "m")
    assert observed(executor, model, "m", "r") == observed(Recorder(OrtExecutor()), model, "m", "r")
    assert executor.passes == 1


def test_what_was_not_planned_is_observed_when_asked_for() -> None:
    model = parse(MODEL)
    executor = Recorder(OrtExecutor(threads=1))
    observed(executor, model, "x")
    observed(executor, model, "y")
    observed(executor, model, "y", histogram=True)
    assert executor.passes == 3
    observed(executor, model, "x", "y")
    assert executor.passes == 3


def test_channels_are_not_taken_for_the_whole_tensor() -> None:
    model, axis = parse(MODEL), Observation(axis=1)
    executor = Recorder(OrtExecutor(threads=1))
    observed(executor, model, "x")
    for _ in range(2):
        found = executor.observe(model, {"x": [axis]}, random_feeds(model))
        assert found["x", axis].minimum.shape == (4,)
    assert executor.passes == 2


def test_models_with_other_weights_are_told_apart() -> None:
    model, other = parse(MODEL), parse(MODEL)
    other.graph.initializer[0].raw_data = np.zeros((4, 4), np.float32).tobytes()
    executor = Recorder(OrtExecutor(threads=1))
    assert observed(executor, model, "m") != [0.0]
    assert observed(executor, other, "m") == [0.0]


def test_one_calibration_serves_all_targets() -> None:
    data = Counted(random_feeds(qc.read_model(FIXTURES / "digits_cnn.onnx").origin, 4))
    targets = ["ort-cpu", "tensorrt", "openvino"]
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


def test_a_lone_target_is_a_list_of_one_and_none_stands_beside_it() -> None:
    model = parse(MODEL)
    data = random_feeds(model)
    assert list(qc.compile_for(model, "openvino", PASSES, data=data)) == ["openvino"]
    with pytest.raises(UsageError, match="takes no target= beside"):
        qc.compile_for(model, ["openvino"], PASSES, data=data, target="npu")


def test_a_target_that_needs_a_newer_opset_reads_the_data_again_and_says_so() -> None:
    data = random_feeds(qc.read_model(FIXTURES / "digits_cnn.onnx").origin, 4)
    results = qc.compile_for(
        FIXTURES / "digits_cnn.onnx", ["ort-cpu", "qnn-htp"], PASSES, data=data, threads=1
    )
    assert not any("read again" in note for note in results["ort-cpu"].notes)
    assert any("the data was read again for qnn-htp" in note for note in results["qnn-htp"].notes)


def _op_types(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_methods_that_look_at_single_feeds_say_that_they_read_again() -> None:
    model = parse(MODEL)
    passes = "match-supergroups, insert-quantizers, calibrate-as-aimet{method=sqnr}, insert-qdq"
    results = qc.compile_for(model, ["ort-cpu-avx2", "openvino"], passes, data=random_feeds(model))
    assert not results["ort-cpu-avx2"].notes
    assert any("the data was read again for openvino" in note for note in results["openvino"].notes)


def test_what_is_kept_is_never_thrown_out() -> None:
    """Two users who want different things of one tensor, in turns."""
    model = parse(MODEL)
    executor = Recorder(OrtExecutor(threads=1))
    for _ in range(3):
        for asked in (Observation("gram", axis=1), Observation("moments", axis=0)):
            found = executor.observe(model, {"m": [asked]}, random_feeds(model))["m", asked]
            assert found.mean().shape == ((4,) if asked.axis == 1 else (2,))
    assert executor.passes == 2


def test_a_range_is_found_in_whatever_has_it() -> None:
    model = parse(MODEL)
    executor = Recorder(OrtExecutor(threads=1), widens=True)
    observed(executor, model, "m")
    assert [one for _, one in executor.recording.models[0]] == [Observation("histogram")]
    observed(executor, model, "m", histogram=True)
    executor.observe(model, {"m": [Observation("gram", axis=1)]}, random_feeds(model))
    executor.observe(model, {"m": [Observation(axis=1)]}, random_feeds(model))
    assert executor.passes == 2


def test_recorded_statistics_are_what_is_asked_for_or_refused(tmp_path: Path) -> None:
    model, feeds = parse(MODEL), random_feeds(parse(MODEL))
    recorder = Recorder(OrtExecutor(threads=1, identify_feeds=True))
    gram = Observation("gram", axis=1)
    straight = recorder.observe(model, {"m": [gram], "x": [Observation("histogram")]}, feeds)
    recorder.recording.save(tmp_path / "recorded.npz")
    recorded = RecordedExecutor.of(OrtExecutor(), tmp_path / "recorded.npz")
    found = recorded.observe(model, {"m": [gram], "x": [Observation()]}, feeds)
    assert np.array_equal(found["m", gram].second_moment(), straight["m", gram].second_moment())
    assert found["x", Observation()].maximum == straight["x", Observation("histogram")].maximum
    for asked in (Observation("moments"), Observation("gram", axis=0), Observation("histogram")):
        with pytest.raises(UsageError, match=rf"the statistics lack 'm' \({asked.kind}\)"):
            recorded.observe(model, {"m": [asked]}, feeds)


def test_several_passes_of_a_pipeline_are_recorded(tmp_path: Path) -> None:
    """The second one observes another model: the one that the first one left behind."""
    model, feeds = parse(MODEL), random_feeds(parse(MODEL), 3)
    other = parse(MODEL.replace("Relu", "Neg"))
    shards = []
    for index in range(2):
        recorder = Recorder(OrtExecutor(threads=1, identify_feeds=True))
        data = load_data(feeds, model_inputs(model)).shard(index, 2)
        for observation in (Observation("moments", axis=1), Observation("histogram")):
            recorder.observe(model, {"m": [observation]}, data)
        recorder.observe(other, {"r": [Observation()]}, data)
        recorder.recording.save(tmp_path / f"{index}.npz")
        shards.append(Recording.load(tmp_path / f"{index}.npz"))
    merged = shards[1].merge(shards[0])
    assert len(merged.models) == 2 and merged.tensors == 2 and len(merged.feeds) == 3
    recorded = RecordedExecutor.of(OrtExecutor(), merged)
    single = OrtExecutor(threads=1)
    for proto, name, observation in (
        (model, "m", Observation("moments", axis=1)),
        (other, "r", Observation()),
    ):
        expected = single.observe(proto, {name: [observation]}, feeds)[name, observation].to_arrays()
        found = recorded.observe(proto, {name: [observation]}, ())[name, observation].to_arrays()
        assert all(np.array_equal(found[field], array) for field, array in expected.items())
    with pytest.raises(UsageError, match="different models"):
        merged.merge(Recording(merged.models[:1]))


def test_data_that_change_between_two_readings_are_refused() -> None:
    model = parse(MODEL)
    recorder = Recorder(OrtExecutor(threads=1, identify_feeds=True))
    recorder.observe(model, {"m": [Observation()]}, random_feeds(model, 2))
    with pytest.raises(UsageError, match="not the same each time"):
        recorder.observe(model, {"x": [Observation()]}, random_feeds(model, 3))


def test_a_file_of_the_version_before_is_read() -> None:
    recording = Recording.load(FIXTURES / "statistics_version_1.npz")
    assert recording.tensors == 21 and len(recording.feeds) == 3
    assert {observation for _, observation in recording.models[0]} == {Observation("histogram")}
    with np.load(FIXTURES / "digits_calibration.npz") as archive:
        data = {"image": archive["image"][:3]}
    passes = "insert-quantizers{slower=integer}, calibrate{method=mse}"
    recorded = qc.compile(FIXTURES / "digits_cnn.onnx", passes, statistics=recording)
    straight = qc.compile(FIXTURES / "digits_cnn.onnx", passes, data=data)
    found, expected = ([q.encoding for q in made.ir.quant.quantizers()] for made in (recorded, straight))
    for one, other in zip(found, expected, strict=True):
        assert one is not None and other is not None and one.spec == other.spec
        np.testing.assert_allclose(one.scale, other.scale, rtol=1e-6)  # processors differ in last bits
        np.testing.assert_array_equal(one.zero_point, other.zero_point)
    with pytest.raises(DataError, match=r"statistics_version_1_channels.npz' are of an older version of qc"):
        Recording.load(FIXTURES / "statistics_version_1_channels.npz")
