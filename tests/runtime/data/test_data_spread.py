"""Data in an order of which every beginning comes from all over it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from qc.runtime import Spread, load_data
from qc.runtime.data.inputs import InputInfo

INPUT = [InputInfo("x", TensorProto.FLOAT, (1,))]


def numbers(data: Spread) -> list[int]:
    return [int(feed["x"][0]) for feed in data]


@given(st.integers(1, 300), st.integers(1, 3))
def test_it_is_the_same_feeds_with_their_labels(count: int, step: int) -> None:
    array = np.arange(count, dtype=np.float32)
    part = load_data({"x": array}, INPUT).shard(0, step)
    spread = Spread(part)
    found = numbers(spread)
    assert sorted(found) == list(range(0, count, step)) and spread.length == len(found)
    assert [int(one) for one in spread.order(array[::step])] == found


@given(st.integers(8, 3000))
def test_every_part_is_from_all_over_the_data(count: int) -> None:
    found = numbers(Spread(load_data({"x": np.arange(count, dtype=np.float32)}, INPUT)))
    for length in (count // 8, count // 4, count // 2):
        part = sorted(found[:length])
        if length >= 8:
            gaps = np.diff([*part, count])
            assert part[0] == 0 and gaps.max() <= 2 * count / length + 1
    assert max(found[:8]) >= count * 3 // 4 - 2


class Loader:
    """Data whose feeds are all made when it is read, as those of a DataLoader are."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 64

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(64):
            self.made += 1
            yield np.array([number], np.float32)


def test_what_has_to_be_read_whole_is_read_once() -> None:
    loader = Loader()
    assert numbers(Spread(load_data(loader, INPUT))) == list(range(64))
    assert loader.made == 64


def test_data_of_unknown_length_keeps_its_order() -> None:
    made = ({"x": np.array([number], np.float32)} for number in range(3))
    spread = Spread(load_data(made, INPUT))
    assert spread.order("abc") == ["a", "b", "c"]
    assert numbers(spread) == [0, 1, 2] and spread.length is None
