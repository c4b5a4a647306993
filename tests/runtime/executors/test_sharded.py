"""Statistics collected in many places are those of one run, whoever collected them and whatever died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.folders import FIXTURES

import qc
from qc.ir.errors import DataError, QcError
from qc.ir.executor import Executor, Observation, Patches
from qc.runtime import (
    ModelStatistics,
    OrtExecutor,
    Recording,
    ShardedExecutor,
    load_data,
    model_inputs,
    process_executor,
)

IMAGES = FIXTURES / "digits_calibration.npz"
SINGLE = OrtExecutor(threads=1, identify_feeds=True)
REQUESTS = {
    "relu_1": [Observation("histogram"), Observation("moments")],
    "conv_2": [Observation("gram", axis=1), Observation("moments", axis=1)],
    "image": [Observation(), Observation("gram", patches=Patches((3, 3), pads=(1, 1, 1, 1)))],
}


@pytest.fixture(scope="module")
def digits() -> ModelProto:
    return onnx.load(FIXTURES / "digits_cnn.onnx")


@pytest.fixture(scope="module")
def straight(digits: ModelProto) -> ModelStatistics:
    return SINGLE.observe(digits, REQUESTS, IMAGES)


def same(first: ModelStatistics, second: ModelStatistics) -> bool:
    """Bit for bit equality."""
    if list(first) != list(second) or first.feeds.tobytes() != second.feeds.tobytes():
        return False
    pairs = [(first[name].to_arrays(), second[name].to_arrays()) for name in first]
    return all(
        one.keys() == other.keys() and all(one[key].tobytes() == other[key].tobytes() for key in one)
        for one, other in pairs
    )


class Interrupting(ThreadPoolExecutor):
    """A pool whose process is asked to end when it takes the first shard."""

    taken = 0

    def submit(self, *arguments: Any, **more: Any) -> Future[Any]:
        self.taken += 1
        os.kill(os.getpid(), signal.SIGTERM)
        return super().submit(*arguments, **more)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be held back here")
def test_the_end_waits_until_all_workers_are_started(digits: ModelProto) -> None:
    """A pool that is left before never tells its processes to end, and this one waits for them for ever."""

    def end(*_: object) -> None:
        raise SystemExit(143)

    before, tested = signal.signal(signal.SIGTERM, end), threading.Event()
    another = threading.Thread(target=tested.wait)  # which takes the signal, as it does not hold it back
    another.start()
    try:
        with Interrupting(1) as pool, pytest.raises(SystemExit):
            ShardedExecutor(SINGLE, pool, 3).observe(digits, REQUESTS, IMAGES)
        assert pool.taken == 3
    finally:
        tested.set()
        another.join()
        signal.signal(signal.SIGTERM, before)


def test_there_are_no_more_shards_than_samples(digits: ModelProto) -> None:
    feeds = [{"image": np.full((1, 1, 8, 8), index, np.float32)} for index in range(3)]
    tasks: list[object] = []

    class Counting(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **more: Any) -> Future[Any]:
            tasks.append(arguments)
            return super().submit(*arguments, **more)

    with Counting(2) as pool:
        found = ShardedExecutor(SINGLE, pool, 8).observe(digits, REQUESTS, feeds)
    assert len(tasks) == 3
    assert same(found, SINGLE.observe(digits, REQUESTS, feeds))


def test_four_shards_merged_in_any_order_equal_one_run(
    digits: ModelProto, straight: ModelStatistics, tmp_path: Path
) -> None:
    data = load_data(IMAGES, model_inputs(digits))
    shards = [SINGLE.observe(digits, REQUESTS, data.shard(index, 4)) for index in range(4)]
    for index, shard in enumerate(shards):
        Recording((shard,)).save(tmp_path / f"{index}.npz")
    loaded = [Recording.load(tmp_path / f"{index}.npz") for index in (2, 0, 3, 1)]
    (merged,) = loaded[0].merge(loaded[1]).merge(loaded[2].merge(loaded[3])).models
    assert same(merged, straight)
    assert len(merged.feeds) == data.length
    with pytest.raises(qc.UsageError, match="feeds are in both, the first is feed 2"):
        merged.merge(shards[2])


def test_threads_with_data_that_are_sent(digits: ModelProto, straight: ModelStatistics) -> None:
    with np.load(IMAGES) as archive:
        feeds = [{"image": image[np.newaxis]} for image in archive["image"]]
    steps: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        executor: Executor = ShardedExecutor(SINGLE, pool, 3)
        found = executor.observe(digits, REQUESTS, iter(feeds), on_feeds=steps.append)
    assert isinstance(found, ModelStatistics) and same(found, straight)
    assert len(steps) == 3 and sum(steps) == len(feeds)


def test_more_shards_than_feeds(digits: ModelProto) -> None:
    with np.load(IMAGES) as archive:
        feeds = [{"image": image[np.newaxis]} for image in archive["image"][:2]]
    with ThreadPoolExecutor(2) as pool:
        found = ShardedExecutor(SINGLE, pool, 5).observe(digits, REQUESTS, feeds)
        assert same(found, SINGLE.observe(digits, REQUESTS, feeds))
        with pytest.raises(DataError, match="no sample"):
            ShardedExecutor(SINGLE, pool, 2).observe(digits, REQUESTS, [])


@pytest.mark.parametrize("method", ["min-max", "percentile", "entropy", "mse", "sqnr", "moving-average"])
def test_sharded_calibration_gives_identical_encodings(digits: ModelProto, method: str) -> None:
    passes = f"insert-quantizers,calibrate{{method={method}}},to-encodings"

    def encodings(executor: Executor) -> object:
        compiled = qc.compile(digits, passes, data=str(IMAGES), executor=executor)
        return compiled.artifacts["encodings"].payload

    with ThreadPoolExecutor(2) as pool:
        assert encodings(ShardedExecutor(SINGLE, pool, 3)) == encodings(SINGLE)


def test_processes_find_the_data_and_a_dead_one_is_replaced(
    digits: ModelProto, straight: ModelStatistics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deadly_feeds.py").write_text(DEADLY)
    executor = process_executor(2, SINGLE)
    found = executor.observe(digits, REQUESTS, "deadly_feeds.py:feeds")
    assert Path("died").exists()
    assert same(found, straight)


DEADLY = f"""
import multiprocessing, os, pathlib, signal
import numpy as np

def feeds():
    images = np.load({str(IMAGES)!r})["image"]
    for number, image in enumerate(images):
        died = pathlib.Path("died")
        if multiprocessing.parent_process() is not None and number == 5 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield {{"image": image[np.newaxis]}}
"""


class Flaky(Pool):
    """Fails the first tries, then does the work at once."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries = 0

    def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> Future:
        self.tries += 1
        future: Future = Future()
        if self.tries <= self.failures:
            future.set_exception(ConnectionError("the worker is gone"))
            return future
        try:
            future.set_result(fn(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def test_a_lost_shard_is_tried_again_a_few_times(digits: ModelProto, straight: ModelStatistics) -> None:
    pool = Flaky(failures=4)
    notes: list[str] = []
    executor = ShardedExecutor(replace(SINGLE, on_note=notes.append), pool, 2)
    assert same(executor.observe(digits, REQUESTS, IMAGES), straight)
    assert pool.tries == 6
    lost = "2 of 2 shards are done again, as a worker failed with ConnectionError: the worker is gone"
    assert notes == [lost, lost]
    with pytest.raises(QcError, match=r"shard \d of 2 failed 3 times.*ConnectionError: the worker is gone"):
        ShardedExecutor(SINGLE, Flaky(failures=9), 2).observe(digits, REQUESTS, IMAGES)


def test_errors_of_qc_are_not_tried_again(digits: ModelProto, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((4, 1, 28, 28)))
    pool = Flaky(failures=0)
    with pytest.raises(DataError, match=r"feed 0: .* dtype float64"):
        ShardedExecutor(SINGLE, pool, 2).observe(digits, REQUESTS, tmp_path / "images.npy")
    assert pool.tries == 2


def test_a_local_cluster_of_dask(digits: ModelProto, straight: ModelStatistics, tmp_path: Path) -> None:
    reason = "the extra 'dask' is not installed"
    dask, distributed = (pytest.importorskip(name, reason=reason) for name in ("dask", "distributed"))
    with (
        dask.config.set(temporary_directory=str(tmp_path)),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = ShardedExecutor(SINGLE, client.get_executor(pure=False), 4)
        assert same(executor.observe(digits, REQUESTS, IMAGES), straight)


SLOW_FEEDS = """
import fcntl, os, time
def feeds():
    held = open("lock", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.rename("lock", "begun")
    time.sleep(600)
    yield {}
"""
KILLED_PARENT = """
import sys, onnx
from qc.ir.executor import Observation
from qc.runtime import process_executor
if __name__ == "__main__":
    requests = {"image": [Observation()]}
    process_executor(1).observe(onnx.load(sys.argv[1]), requests, "slow.py:feeds")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "slow.py").write_text(SLOW_FEEDS)
    (tmp_path / "parent.py").write_text(KILLED_PARENT)
    command = [sys.executable, "parent.py", str(FIXTURES / "digits_cnn.onnx")]
    with subprocess.Popen(command, cwd=tmp_path) as parent:
        while not (tmp_path / "begun").exists() and parent.poll() is None:
            time.sleep(0.05)
        parent.kill()
    with (tmp_path / "begun").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the worker, which else sleeps for ten minutes
