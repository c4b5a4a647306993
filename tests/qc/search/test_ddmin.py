"""Delta debugging finds a smallest part, as far as taking away single items can."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from qc.search.ddmin import ddmin


@given(length=st.integers(1, 60), needed=st.sets(st.integers(0, 59), max_size=6))
def test_what_is_needed_is_left(length: int, needed: set[int]) -> None:
    needed = {item for item in needed if item < length} or {length - 1}
    assert ddmin(range(length), lambda items: needed <= set(items)) == sorted(needed)


@given(length=st.integers(1, 30), seed=st.integers(0, 1000))
def test_no_single_item_can_be_taken_from_what_is_left(length: int, seed: int) -> None:
    def test(items: Sequence[int]) -> bool:
        return len(items) == length or hash((seed, tuple(items))) % 3 == 0

    left = ddmin(range(length), test)
    assert left == sorted(left) and test(left)
    if len(left) > 1:
        assert not any(test([*left[:index], *left[index + 1 :]]) for index in range(len(left)))


def test_a_single_item_among_many_takes_few_tests() -> None:
    tests = []

    def test(items: Sequence[int]) -> bool:
        tests.append(items)
        return 617 in items

    assert ddmin(range(1000), test) == [617]
    assert len(tests) < 40
