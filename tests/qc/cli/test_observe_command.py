"""``qc observe``, ``qc merge-statistics`` and calibration on what they wrote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import FIXTURES

import qc
from qc.cli import main
from qc.runtime import OrtExecutor, Recording, load_data, model_inputs

MODEL, DATA = str(FIXTURES / "digits_cnn.onnx"), str(FIXTURES / "digits_calibration.npz")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QC_CACHE", raising=False)


def observe(*arguments: str) -> None:
    assert main(["observe", MODEL, "--data", DATA, "--threads", "1", *arguments]) == 0


@pytest.mark.parametrize("method", ["min-max", "percentile", "entropy", "mse", "sqnr", "moving-average"])
def test_parts_observed_apart_calibrate_as_one_run(method: str) -> None:
    placed = "fold-batch-norms,insert-quantizers{slower=integer}"
    passes = ["--passes", f"{placed},calibrate{{method={method}}},insert-qdq"]
    for part in ("1", "2", "3"):
        observe(*passes, "--shard", f"{part}/3", "-o", f"{part}.npz")
    assert main(["merge-statistics", "3.npz", "1.npz", "2.npz", "-o", "all.npz"]) == 0
    assert Recording.load("all.npz").missing_feeds == 0
    assert main([MODEL, *passes, "--statistics", "all.npz", "-o", "merged.onnx"]) == 0
    assert main([MODEL, *passes, "--data", DATA, "--threads", "1", "-o", "straight.onnx"]) == 0
    assert Path("merged.onnx").read_bytes() == Path("straight.onnx").read_bytes()


def test_one_file_serves_every_method() -> None:
    statistics = qc.observe(MODEL, "insert-quantizers{slower=integer},calibrate", data=DATA)
    outputs = set()
    for method in ("min-max", "percentile", "entropy", "mse", "sqnr", "moving-average"):
        passes = f"insert-quantizers{{slower=integer}},calibrate{{method={method}}},to-encodings"
        compiled = qc.compile(MODEL, passes, statistics=statistics)
        assert str(compiled.artifacts["encodings"].payload) == str(
            qc.compile(MODEL, passes, data=DATA).artifacts["encodings"].payload
        )
        outputs.add(str(compiled.artifacts["encodings"].payload))
    assert len(outputs) > 4


def test_one_file_serves_several_targets(capsys: pytest.CaptureFixture[str]) -> None:
    passes = ["--passes", "insert-quantizers{slower=integer},calibrate,insert-qdq"]
    targets = [*passes, "--target", "ort-cpu", "--also-for", "npu"]
    observe(*passes, "--target", "ort-cpu", "-o", "one.npz")
    assert main([MODEL, *targets, "--statistics", "one.npz", "-o", "merged.onnx"]) == 2
    refusal = capsys.readouterr().err
    assert "the statistics lack '" in refusal and "--also-for" in refusal
    observe(*targets, "-o", "both.npz")
    assert main([MODEL, *targets, "--statistics", "both.npz", "-o", "merged.onnx"]) == 0
    assert main([MODEL, *targets, "--data", DATA, "--threads", "1", "-o", "straight.onnx"]) == 0
    for suffix in ("onnx", "npu.onnx"):
        assert Path(f"merged.{suffix}").read_bytes() == Path(f"straight.{suffix}").read_bytes()


def test_one_recording_holds_other_models_of_other_targets() -> None:
    passes = "insert-quantizers{slower=integer},calibrate{rounded_parameters=true},to-encodings"
    targets = ("ort-cpu", "ort-cpu-avx2")  # whose weights, rounded while data is observed, are not the same
    recording = qc.observe(MODEL, passes, data=DATA, target=targets[0], also_for=targets[1:])
    assert len(recording.models) == 2
    for target in targets:
        recorded = qc.compile(MODEL, passes, statistics=recording, target=target)
        straight = qc.compile(MODEL, passes, data=DATA, target=target)
        assert recorded.artifacts["encodings"].payload == straight.artifacts["encodings"].payload


def test_a_method_without_statistics_is_refused_before_the_data_is_read() -> None:
    passes = "insert-quantizers{slower=integer},calibrate-as-aimet{method=sqnr}"
    with pytest.raises(qc.UsageError, match=r"calibrate-as-aimet.method=sqnr. looks at the tensors"):
        qc.observe(MODEL, passes, data=lambda: pytest.fail("read"))


def test_options_without_effect_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    passes = "insert-quantizers{slower=integer},calibrate-as-aimet{method=sqnr},to-encodings"
    assert main([MODEL, "--passes", passes, "--data", DATA, "--cache", "kept", "-o", "q.onnx"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "--cache without effect: calibrate-as-aimet{method=sqnr} goes by the first sample" in told


def test_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    observe("--shard", "2/3")
    told = capsys.readouterr().err
    assert "43 samples, part 2 of 3" in told and "digits_cnn.statistics.npz" in told
    assert main(["merge-statistics", "-q", "digits_cnn.statistics.npz", "-o", "same.npz"]) == 0
    assert capsys.readouterr().err == ""
    assert len(Recording.load("same.npz").feeds) == 43
    assert main([MODEL, "--statistics", "same.npz", "-o", "part.onnx"]) == 0
    assert "of 43 samples and lack at least 85 samples" in " ".join(capsys.readouterr().err.split())


def test_a_cache_fills_and_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QC_CACHE", "kept")
    assert main([MODEL, "--data", DATA, "-o", "first.onnx"]) == 0
    assert len(list(Path("kept").iterdir())) == 1

    def refuse(*arguments: object) -> None:
        raise AssertionError("a feed was run again")

    monkeypatch.setattr("qc.runtime.executors.observer.Observer.add", refuse)
    assert main([MODEL, "--data", DATA, "-o", "second.onnx"]) == 0
    assert Path("first.onnx").read_bytes() == Path("second.onnx").read_bytes()


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with statistics of some feeds after the default passes, and after others."""
    folder = tmp_path_factory.mktemp("statistics")
    data = load_data(DATA, model_inputs(onnx.load(MODEL))).shard(0, 40)
    executor = OrtExecutor(identify_feeds=True)
    qc.observe(MODEL, data=data, executor=executor).save(folder / "one.npz")
    other = "insert-quantizers{slower=integer},calibrate"
    qc.observe(MODEL, other, data=data, executor=executor).save(folder / "other.npz")
    return folder


def test_there_are_no_more_processes_than_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", image=np.zeros((2, 1, 8, 8), np.float32))
    assert main(["observe", MODEL, "--data", "two.npz", "--jobs", "500", "-o", "two.stats.npz"]) == 0
    assert "--jobs 500 is taken for --jobs 2, a process for each sample" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["observe", MODEL], "there is no data to observe"),
        (["observe", MODEL, "--data", DATA, "--shard", "4/3"], "not of the form I/N"),
        (["observe", MODEL, "--data", DATA, "-o", MODEL], "is the input model"),
        (["observe", MODEL, "--data", DATA, "--passes", "fold-constants"], "has no pass 'calibrate'"),
        (["merge-statistics", "one.npz", "one.npz", "-o", "x.npz"], "feeds are in both"),
        (["merge-statistics", "one.npz", "-o", "one.npz"], "'one.npz' is an input"),
        (["observe", MODEL, "--data", DATA, "-o", "x.json"], "in the format .npz; name it x.npz"),
        (["observe", MODEL, "--data", DATA, "-o", "x.stats"], "'x.stats' would be statistics"),
        (["merge-statistics", "one.npz", "-o", "x.onnx"], "would be statistics, in the format .npz"),
        (["merge-statistics", "one.npz", "-o", "x"], "name it x.npz"),
        (["merge-statistics", "other.npz", "one.npz", "-o", "x.npz"], "different models"),
        (["merge-statistics", "one.npz", "one.npz", "-o", "x.stats"], "name it x.npz"),
        (["merge-statistics", "one.npz", "none.npz", "-o", "no/x.stats"], "'none.npz' do not exist"),
        (["merge-statistics", "none.npz", "-o", "x.npz"], "'none.npz' do not exist"),
        (["merge-statistics", ".", "-o", "x.npz"], "cannot read statistics '.': Is a directory"),
        ([MODEL, "--statistics", DATA], "holds no statistics, or is damaged; collect them with qc observe"),
        ([MODEL, "--statistics", "one.npz", "-o", "one.npz"], "'one.npz' is the file of the statistics"),
        ([MODEL, "--statistics", "one.npz", "--jobs", "2"], "--jobs is for collecting statistics"),
        ([MODEL, "--data", DATA, "--jobs", "5000"], "5000 is more than 1024"),
        ([MODEL, "--statistics", "other.npz"], "collected on another model, or after other passes"),
    ],
)
def test_mistakes_are_one_sentence(
    statistics: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    for path in statistics.iterdir():
        shutil.copy(path, path.name)
    assert main(arguments) in (2, 3, 4)
    told = capsys.readouterr().err
    assert sentence in " ".join(told.split()) and "Traceback" not in told


def test_statistics_of_no_sample_calibrate_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["observe", MODEL, "--data", DATA, "--shard", "200/200", "-o", "none.npz"]) == 0
    assert main([MODEL, "--statistics", "none.npz"]) == 4
    assert "statistics 'none.npz' are of no sample" in capsys.readouterr().err
    assert not Path("model.q.onnx").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal as POSIX has them")
def test_an_interrupt_of_all_processes_is_told_once() -> None:
    Path("slow.py").write_text(
        textwrap.dedent("""
            import multiprocessing, pathlib, time
            import numpy as np

            def feeds():
                for _ in range(100_000):
                    if multiprocessing.parent_process() is not None:
                        pathlib.Path("begun").touch()
                    time.sleep(0.01)
                    yield {"image": np.zeros((1, 1, 8, 8), np.float32)}
        """)
    )
    command = [sys.executable, "-m", "qc", MODEL, "--data", "slow.py:feeds", "--jobs", "2"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in the background
    )
    while not Path("begun").exists() and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.strip()) == (130, "qc: error: interrupted")
    assert not Path("model.q.onnx").exists()


def test_statistics_are_written_without_pickles() -> None:
    observe("-o", "all.npz")
    with np.load("all.npz", allow_pickle=False) as archive:
        assert {"about", "identified_feeds", "minimum", "maximum", "ranks", "counts"} <= set(archive.files)
