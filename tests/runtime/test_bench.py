"""What a benchmark tells is of the models that were given, and the machine is left as it was."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds

import qc
from qc.ir.errors import DataError, ModelError, UsageError
from qc.ir.onnx.save import save_model
from qc.rendering.evaluation import latency_note
from qc.runtime import OpenModel, bench
from qc.runtime.speed.footprint import peak_memory
from qc.runtime.speed.latency import pinned_processors, time_in_turns

SMALL = parse("small (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
FEED = {"x": np.ones((1, 4), np.float32)}


def large(megabytes: int) -> ModelProto:
    """A model with a weight of that size."""
    model = parse("large (float[1, 1024] x) => (float[1, m] y) { y = MatMul(x, w) }")
    array = np.ones((1024, megabytes * 256), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))
    return model


def saved(folder: Path, name: str, model: ModelProto) -> Path:
    onnx.save(model, folder / name)
    return folder / name


def test_the_first_model_is_the_reference(tmp_path: Path) -> None:
    first, second = saved(tmp_path, "a.onnx", SMALL), saved(tmp_path, "b.onnx", SMALL)
    result = bench({"first": first, "second": second}, [FEED], seconds=0.01, max_rounds=9)
    assert 5 <= result.rounds <= 9 and result.threads == 1
    assert [cost.name for cost in result.models] == ["first", "second"]
    assert result.models[0].latency.ratio == 1 and result.models[0].latency.ratio_quartiles == (1, 1)
    for cost, path in zip(result.models, (first, second), strict=True):
        low, high = cost.latency.seconds_quartiles
        assert 0 < low <= cost.latency.seconds <= high
        assert cost.file_size == path.stat().st_size


def test_the_models_run_where_they_are_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a GPU, with sessions on the CPU in place of those on it."""
    asked = []

    def opened(path: Path, threads: int, provider: str) -> object:
        asked.append(provider)
        return OpenModel(path, threads=threads)

    monkeypatch.setattr("qc.runtime.speed.bench.choose_provider", lambda name: {"auto": "cuda"}[name])
    monkeypatch.setattr("qc.runtime.speed.bench.OpenModel", opened)
    path = saved(tmp_path, "a.onnx", SMALL)
    result = bench({"one": path, "two": path}, [FEED], seconds=0.01, max_rounds=5, provider="auto")
    assert asked == ["cuda", "cuda"] and result.device == "cuda"
    assert [cost.peak_memory for cost in result.models] == [None, None], "memory of the GPU is not measured"
    assert latency_note(result).startswith("median of 5 rounds, on the GPU; ")


@pytest.mark.parametrize(("high", "is_told"), [(1.4, False), (12.0, True)])
def test_times_that_tell_little_are_told(tmp_path: Path, high: float, is_told: bool) -> None:
    result = bench({"it": saved(tmp_path, "a.onnx", SMALL)}, [FEED], seconds=0.01, max_rounds=5)
    one = result.models[0]
    spread = replace(one, latency=replace(one.latency, ratio_quartiles=(0.9, high)))
    assert ("they tell little" in latency_note(replace(result, models=(spread,)))) == is_told


def test_the_size_counts_external_data(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(large(1), path, save_as_external_data=True, location="weights.bin")
    result = bench({"it": path}, [{"x": np.ones((1, 1024), np.float32)}], seconds=0.01)
    assert result.models[0].file_size == path.stat().st_size + (tmp_path / "weights.bin").stat().st_size


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the system tells no memory")
def test_memory_follows_the_weights_and_not_this_process(tmp_path: Path) -> None:
    ballast = np.ones(100 << 20, np.uint8)  # a peak that a child would begin with
    feed = {"x": np.ones((1, 1024), np.float32)}
    peaks = [
        peak_memory(saved(tmp_path, f"{size}.onnx", large(size)), feed, threads=1, needs_qc=False)
        for size in (1, 32)
    ]
    assert peaks[0] is not None and peaks[1] is not None
    assert peaks[0] < 32 << 20 < peaks[1] < 128 << 20
    assert ballast.all()


def test_a_simulation_is_measured_with_its_library(tmp_path: Path) -> None:
    model = parse("g (float[1, 4] x) => (float[1, 4] y) <float[4, 4] w> { y = MatMul(x, w) }")
    compiled = qc.compile(model, "w8a8", data=random_feeds(model))
    save_model(compiled.simulation, tmp_path / "simulation.onnx")
    files = {"float": saved(tmp_path, "float.onnx", model), "simulation": tmp_path / "simulation.onnx"}
    assert len(bench(files, random_feeds(model), seconds=0.01).models) == 2


def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.onnx", SMALL)
    with pytest.raises(ModelError, match=r"a.onnx' cannot be run to measure its memory: .*x"):
        peak_memory(path, {}, threads=1, needs_qc=False)
    with pytest.raises(ModelError, match=r"absent.onnx'"):
        peak_memory(tmp_path / "absent.onnx", FEED, threads=1, needs_qc=False)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.onnx", SMALL)
    other = saved(tmp_path, "b.onnx", parse("o (float[n, 4] z) => (float[n, 4] y) { y = Relu(z) }"))
    with pytest.raises(ModelError, match="the float model takes 'x'"):
        bench({"a": path, "b": other}, [FEED], seconds=0.01)
    with pytest.raises(UsageError, match="a benchmark needs a model and more than 0 seconds"):
        bench({}, [FEED])
    with pytest.raises(UsageError, match="more than 0 seconds"):
        bench({"a": path}, [FEED], seconds=0)
    with pytest.raises(DataError, match="there is no sample"):
        bench({"a": path}, [], seconds=0.01)


def test_no_time_means_no_rounds() -> None:
    model = OpenModel(SMALL, threads=1)
    assert time_in_turns([model, model], FEED, 0, 50) == time_in_turns([model, model], FEED, 1, 0)
    assert time_in_turns([model], FEED, 0, 50).latencies == (None,)
    assert time_in_turns([model], FEED, 1, 1).rounds == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_processors_are_given_back() -> None:
    lent = os.sched_getaffinity(0)
    with pinned_processors(1) as pinned:
        assert pinned and len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == lent
    with pytest.raises(KeyError), pinned_processors(len(lent)):
        assert os.sched_getaffinity(0) == lent
        raise KeyError
    with pinned_processors(len(lent) + 1) as pinned:
        assert not pinned and os.sched_getaffinity(0) == lent
