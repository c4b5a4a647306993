"""Gram matrices of arrays that are at hand: what they are of, and which positions are looked at."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation, Patches
from qc.runtime import OrtExecutor
from qc.runtime.native import kernels

EVERYTHING = 1 << 40
CHANNELS = Observation("gram", axis=1)


def arrays(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_arrays_lie_side_by_side_in_each_group() -> None:
    """Depthwise: each group has a channel of the first array, and that of the second one."""
    feeds = [(arrays(2, 3, 4, 5, seed=seed), arrays(2, 3, 4, 5, seed=seed + 9)) for seed in range(3)]
    patches = Observation("gram", patches=Patches((1, 1), group=3))
    mean, gram, count = OrtExecutor(threads=2).gram(feeds, patches, EVERYTHING)
    both = np.stack([np.concatenate(pair) for pair in zip(*feeds, strict=True)]).astype(np.float64)
    rows = both.transpose(2, 0, 1, 3, 4).reshape(3, 2, -1)
    assert count == rows.shape[2]
    np.testing.assert_allclose(mean, rows.mean(2), rtol=1e-12)
    np.testing.assert_allclose(gram, rows @ rows.swapaxes(1, 2) / rows.shape[2], rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 7), (2, 40, 9), (5000, 20)])
def test_features_along_an_axis(shape: tuple[int, ...]) -> None:
    x = arrays(*shape)
    mean, gram, _ = OrtExecutor().gram([(x,), (2 * x,)], CHANNELS, EVERYTHING)
    rows = np.moveaxis(x, 1, 0).reshape(shape[1], -1).astype(np.float64)
    np.testing.assert_allclose(mean[0], 1.5 * rows.mean(1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gram[0], 2.5 * rows @ rows.T / rows.shape[1], rtol=1e-9, atol=1e-12)


def test_features_along_the_first_axis_of_short_feeds() -> None:
    """Short feeds are multiplied at once where they can lie behind each other, along the first axis."""
    feeds = [(arrays(7, 3, seed=seed),) for seed in range(5)]
    _, gram, count = OrtExecutor().gram(feeds, Observation("gram", axis=0), EVERYTHING)
    rows = np.concatenate([x for (x,) in feeds], axis=1).astype(np.float64)
    assert count == 15
    np.testing.assert_allclose(gram[0], rows @ rows.T / 15, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("width", [32, 30, 27, 25, 8, 7])
@pytest.mark.parametrize("rows", [1000, 2500, 9000])
def test_a_part_of_the_positions_is_spread_over_columns_and_feeds(width: int, rows: int) -> None:
    """The features say in which column modulo 2, 3 and 4, and in which feed, a position lies."""
    counts = (2, 3, 4, 6)
    column = np.arange(width)
    said = [(column % count == index) for count in counts[:3] for index in range(count)]
    feeds = []
    for feed in range(6):
        where = [np.full(width, feed == index) for index in range(6)]
        one = np.stack([*said, *where]).astype(np.float32)
        feeds.append((np.broadcast_to(one[np.newaxis, :, np.newaxis], (1, len(one), 4000 // width, width)),))
    mean, *_ = OrtExecutor(threads=1).gram(feeds, CHANNELS, rows)
    whole, *_ = OrtExecutor(threads=1).gram(feeds, CHANNELS, EVERYTHING)
    np.testing.assert_allclose(mean, whole, atol=0.02)


def test_they_depend_neither_on_threads_nor_on_the_instruction_set() -> None:
    feeds = [(arrays(3, 6, 40, 40, seed=seed), arrays(3, 6, 40, 40, seed=seed + 9)) for seed in range(2)]
    patches = Observation("gram", patches=Patches((3, 3), pads=(1, 1, 1, 1), group=2))
    before = kernels.instruction_sets()[0]
    found = []
    try:
        for name in kernels.instruction_sets():
            kernels.use_instruction_set(name)
            found += [OrtExecutor(threads=threads).gram(feeds, patches, 7000) for threads in (1, 3)]
    finally:
        kernels.use_instruction_set(before)
    for mean, gram, _ in found[1:]:
        assert mean.tobytes() == found[0][0].tobytes()
        assert gram.tobytes() == found[0][1].tobytes()


def test_what_is_not_finite_or_not_there_is_refused() -> None:
    x = arrays(2, 3)
    bad = x.copy()
    bad[1, 1] = math.nan
    executor = OrtExecutor(threads=1)
    with pytest.raises(DataError, match="1 values are NaN or infinite on feed 1"):
        executor.gram([(x,), (bad,)], CHANNELS, 10)
    assert executor.gram([(np.zeros((0, 3), np.float32),)], CHANNELS, 10) is None
    assert executor.gram([], CHANNELS, 10) is None
    with pytest.raises(UsageError, match="have one shape"):
        executor.gram([(arrays(2, 3), arrays(1, 3))], CHANNELS, 10)
    with pytest.raises(UsageError, match="does not fit"):
        executor.gram([(x,)], Observation("gram", patches=Patches((3, 3))), 10)
    with pytest.raises(UsageError, match="beyond its last one"):
        kernels.products([x], CHANNELS, np.array([2]))
