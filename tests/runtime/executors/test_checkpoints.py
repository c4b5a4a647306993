"""Calibration goes on where it was killed, and is not done twice for the same model, data and tensors."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.folders import FIXTURES

from qc.ir.errors import UsageError
from qc.ir.executor import Feed, Observation
from qc.runtime import ModelStatistics, OrtExecutor, Recording, ShardedExecutor

REQUESTS = {
    "relu_1": [Observation("histogram"), Observation("moments", axis=1)],
    "conv_2": [Observation(axis=1), Observation("gram", axis=1)],
    "image": [Observation()],
}
FEEDS = 24


@pytest.fixture(scope="module")
def digits() -> ModelProto:
    return onnx.load(FIXTURES / "digits_cnn.onnx")


def images(count: int = FEEDS, changed: int | None = None) -> list[Feed]:
    with np.load(FIXTURES / "digits_calibration.npz") as archive:
        arrays = [image[np.newaxis] for image in archive["image"][:count]]
    if changed is not None:
        arrays[changed] = arrays[changed] * np.float32(2)
    return [{"image": array} for array in arrays]


class Counted:
    """Feeds, and how many of them were run, as the observer tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from qc.runtime.executors.observer import Observer

        self.run: list[int] = []
        add = Observer.add

        def counted(observer: Observer, number: int, feed: Feed) -> None:
            self.run.append(number)
            add(observer, number, feed)

        monkeypatch.setattr(Observer, "add", counted)


def same(first: ModelStatistics, second: ModelStatistics) -> bool:
    """Bit for bit equality of the statistics."""
    pairs = [(first[name].to_arrays(), second[name].to_arrays()) for name in first]
    return list(first) == list(second) and all(
        one.keys() == other.keys() and all(one[key].tobytes() == other[key].tobytes() for key in one)
        for one, other in pairs
    )


def executor(
    folder: str | Path, notes: list[str] | None = None, allow_nonfinite: bool = False
) -> OrtExecutor:
    on_note = None if notes is None else notes.append
    return OrtExecutor(threads=1, cache=folder, on_note=on_note, allow_nonfinite=allow_nonfinite)


def test_a_finished_calibration_is_read_again(
    digits: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = OrtExecutor(threads=1).observe(digits, REQUESTS, images())
    runs = Counted(monkeypatch)
    assert same(executor(tmp_path).observe(digits, REQUESTS, images()), plain)
    assert runs.run == list(range(FEEDS))
    steps: list[int] = []
    again = executor(str(tmp_path)).observe(digits, REQUESTS, iter(images()), on_feeds=steps.append)
    assert same(again, plain) and sum(steps) == FEEDS
    assert len(runs.run) == FEEDS
    more = executor(tmp_path).observe(digits, REQUESTS, images(FEEDS + 4))
    assert same(more, OrtExecutor(threads=1).observe(digits, REQUESTS, images(FEEDS + 4)))
    assert runs.run[FEEDS : FEEDS + 4] == list(range(FEEDS, FEEDS + 4))


def test_another_model_or_request_is_something_else(
    digits: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    executor(tmp_path, notes).observe(digits, REQUESTS, images())
    other = ModelProto()
    other.CopyFrom(digits)
    weight = onnx.numpy_helper.to_array(other.graph.initializer[0]) * np.float32(1.5)
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, other.graph.initializer[0].name))
    fewer = {"image": [Observation()]}
    runs = Counted(monkeypatch)
    executor(tmp_path, notes).observe(other, REQUESTS, images())
    executor(tmp_path, notes).observe(digits, fewer, images())
    executor(tmp_path, notes, allow_nonfinite=True).observe(digits, REQUESTS, images())
    assert len(runs.run) == 3 * FEEDS and len(list(tmp_path.iterdir())) == 4
    assert notes == []


@pytest.mark.parametrize("other", [images(changed=7), images(FEEDS - 1)], ids=["changed", "shorter"])
def test_other_data_that_begin_alike_start_again_with_a_note(
    digits: ModelProto, tmp_path: Path, other: list[Feed]
) -> None:
    executor(tmp_path).observe(digits, REQUESTS, images())
    notes: list[str] = []
    found = executor(tmp_path, notes).observe(digits, REQUESTS, other)
    assert same(found, OrtExecutor(threads=1).observe(digits, REQUESTS, other))
    assert len(notes) == 1 and "other data" in notes[0]


def test_shards_that_begin_alike_have_files_of_their_own(digits: ModelProto, tmp_path: Path) -> None:
    feeds = [images(1)[0]] * 4
    notes: list[str] = []
    for _ in range(2):
        sharded = ShardedExecutor(executor(tmp_path, notes), lambda: ThreadPoolExecutor(2), 2)
        found = sharded.observe(digits, REQUESTS, feeds)
        assert same(found, OrtExecutor(threads=1).observe(digits, REQUESTS, feeds))
    assert notes == [] and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "foreign"])
def test_a_damaged_file_is_noticed_and_replaced(digits: ModelProto, tmp_path: Path, damage: str) -> None:
    plain = executor(tmp_path).observe(digits, REQUESTS, images())
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[len(content) // 3] ^= 0x10
    elif damage == "emptied":
        content.clear()
    else:
        content[:] = b"this is no archive"
    file.write_bytes(bytes(content))
    notes: list[str] = []
    assert same(executor(tmp_path, notes).observe(digits, REQUESTS, images()), plain)
    assert len(notes) == 1 and str(file) in notes[0]
    assert same(Recording.load(file).models[0], plain)


def test_writing_checkpoints_takes_a_small_share_of_the_time(
    digits: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = Recording.save

    def counted(statistics: Recording, path: str | Path) -> None:
        saved.append(len(statistics.feeds))
        save(statistics, path)

    monkeypatch.setattr(Recording, "save", counted)
    monkeypatch.setattr("qc.runtime.executors.checkpoints._WORK_PER_WRITING", 1e9)
    executor(tmp_path).observe(digits, REQUESTS, images())
    assert saved == [1, FEEDS]  # the first one tells what it costs


def test_a_cache_that_is_no_folder(digits: ModelProto, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot use the cache .*file"):
        executor(tmp_path / "file").observe(digits, REQUESTS, images())


PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np, onnx
from qc.ir.executor import Observation
from qc.runtime import OrtExecutor
from qc.runtime.executors import checkpoints
from qc.runtime.executors.observer import Observer

checkpoints._WORK_PER_WRITING = 0  # after every feed, however busy the machine is
add = Observer.add

def counted(observer, number, feed):
    time.sleep(0.1)
    add(observer, number, feed)
    print(number, flush=True)

Observer.add = counted
images = np.load(sys.argv[2])["image"][:24]
feeds = [{"image": image[np.newaxis]} for image in images]
requests = {
    "relu_1": [Observation("histogram"), Observation("moments", axis=1)],
    "conv_2": [Observation(axis=1), Observation("gram", axis=1)],
    "image": [Observation()],
}
OrtExecutor(threads=1, cache=Path(sys.argv[3])).observe(onnx.load(sys.argv[1]), requests, feeds)
"""


def feeds_done(folder: Path, kill_after: int | None) -> Iterator[int]:
    """The numbers of the feeds that a process runs, which is killed after so many."""
    command = [sys.executable, "-c", PROGRAM, "digits_cnn.onnx", "digits_calibration.npz", str(folder)]
    with subprocess.Popen(command, cwd=FIXTURES, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield int(line)
            if kill_after is not None and int(line) + 1 == kill_after:
                time.sleep(0.05)  # in the middle of the next feed
                process.send_signal(signal.SIGKILL)
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)


def test_after_a_kill_at_half_at_most_one_feed_is_done_again(digits: ModelProto, tmp_path: Path) -> None:
    first = list(feeds_done(tmp_path, kill_after=FEEDS // 2))
    second = list(feeds_done(tmp_path, kill_after=None))
    assert sorted({*first, *second}) == list(range(FEEDS))
    assert len(first) < FEEDS and len(first) + len(second) <= FEEDS + 1
    (file,) = tmp_path.iterdir()
    assert same(Recording.load(file).models[0], OrtExecutor(threads=1).observe(digits, REQUESTS, images()))
