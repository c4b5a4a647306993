"""Sums that do not depend on the order, and are as good as those of fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qc.runtime.statistics.exact_sum import ExactSum

numbers = st.lists(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
        st.floats(-8, 8),
        st.integers(-(2**40), 2**40).map(float),
        st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.0**40, 2.0**-40, 2.0**80 - 2.0**30]),
    ),
    min_size=1,
    max_size=20,
)


def total(values: list[float]) -> ExactSum:
    return reduce(ExactSum.plus, [np.array(value) for value in values], ExactSum.zero())


def same(first: ExactSum, second: ExactSum) -> bool:
    return np.array_equal(first.digits, second.digits) and np.array_equal(first.top, second.top)


@given(numbers, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_grouping_do_not_matter(values: list[float], random: object, cut: int) -> None:
    straight = total(values)
    random.shuffle(values)  # type: ignore[attr-defined]
    assert same(total(values), straight)
    assert same(total(values[cut:]).merge(total(values[:cut])), straight)


@given(numbers)
def test_the_error_is_far_below_that_of_float64(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    largest = max(map(abs, values))
    found = float(total(values).value())
    tolerance = len(values) * Fraction(largest) / 2**80 + Fraction(math.ulp(float(exact)))
    assert abs(Fraction(found) - exact) <= tolerance


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_one_number_stays_what_it_is(value: float) -> None:
    assert float(ExactSum.of(np.array(value)).value()) == value


def test_each_element_is_a_sum_of_its_own() -> None:
    parts = [np.array([1e20, 1.0]), np.array([-1e20, 2.0]), np.array([2.0**-10, 3.0])]
    sums = reduce(ExactSum.plus, parts, ExactSum.zero((2,)))
    assert sums.value().tolist() == [2.0**-10, 6.0]
    assert sums.copy(0).value() == 2.0**-10


def test_shapes_broadcast_as_arrays_do() -> None:
    square = np.arange(9.0).reshape(3, 3) * 1e20
    sums = ExactSum.zero((1,)).plus(square).merge(ExactSum.of(np.array([2.0**70])))
    assert np.array_equal(sums.value(), square + 2.0**70)
