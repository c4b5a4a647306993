"""Statistics that would take too much memory at once are collected in several passes over the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import FIXTURES

from qc.ir.executor import Feed, Observation, Patches
from qc.runtime import OrtExecutor
from qc.runtime.executors.budget import bytes_of, split_by_memory

REQUESTS = {
    "image": [Observation("gram", patches=Patches((3, 3)))],
    "relu_1": [Observation("histogram"), Observation("gram", axis=1)],
    "conv_2": [Observation("gram", patches=Patches((3, 3), group=2)), Observation("moments")],
}


class Counted:
    """Data that counts how often it is read."""

    def __init__(self) -> None:
        with np.load(FIXTURES / "digits_calibration.npz") as archive:
            self.feeds: list[Feed] = [{"image": image[np.newaxis]} for image in archive["image"][:5]]
        self.passes = 0

    def __call__(self) -> Iterator[Feed]:
        self.passes += 1
        yield from self.feeds


@pytest.mark.parametrize(("memory", "passes"), [(None, 1), (1 << 30, 1), (600_000, 2), (1, 5)])
def test_the_result_is_that_of_one_pass(memory: int | None, passes: int, tmp_path: Path) -> None:
    digits = onnx.load(FIXTURES / "digits_cnn.onnx")
    straight = OrtExecutor(threads=1, identify_feeds=True).observe(digits, REQUESTS, Counted())
    for cache in (None, tmp_path):
        data = Counted()
        steps: list[int] = []
        executor = OrtExecutor(threads=1, memory=memory, identify_feeds=True, cache=cache)
        found = executor.observe(digits, REQUESTS, data, on_feeds=steps.append)
        assert data.passes == passes + (memory is not None)  # one to see how large Gram matrices are
        assert list(found) == list(straight) and np.array_equal(found.feeds, straight.feeds)
        assert steps == [1] * 5
        for request, expected in straight.items():
            arrays = found[request].to_arrays()
            assert all(np.array_equal(arrays[name], array) for name, array in expected.to_arrays().items())


def test_parts_stay_below_the_limit_where_they_can() -> None:
    sizes = {(name, Observation()): size for name, size in {"a": 3, "b": 4, "c": 9, "d": 1, "e": 7}.items()}
    parts = split_by_memory(sizes, 8)
    assert [[name for name, _ in part] for part in parts] == [["a", "b"], ["c"], ["d", "e"]]


def test_a_gram_matrix_of_patches_is_as_large_as_its_features() -> None:
    whole = bytes_of(Observation("gram", patches=Patches((3, 3))), 64)
    assert whole == bytes_of(Observation("gram", axis=1), 64 * 9)
    assert bytes_of(Observation("gram", patches=Patches((3, 3), group=4)), 64) < whole / 3.9
