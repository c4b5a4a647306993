"""Statistics merge exactly in any order and grouping, and their histograms equal numpy's."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Observation, Statistics
from qc.runtime import TensorStatistics

WITH_HISTOGRAM = Observation("histogram")

anything = hnp.arrays(np.float32, st.integers(0, 60), elements=st.floats(width=32))
finite = hnp.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.floats(-2, 2, width=32),
        st.sampled_from([0.0, -0.0, 1.0, -1.0]),
    ),
)


def same(a: TensorStatistics, b: TensorStatistics) -> bool:
    """Bit for bit equality of all fields."""
    first, second = a.to_arrays(), b.to_arrays()
    return first.keys() == second.keys() and all(
        first[key].tobytes() == second[key].tobytes() and first[key].dtype == second[key].dtype
        for key in first
    )


def test_fulfils_the_protocol() -> None:
    assert isinstance(TensorStatistics.from_array(np.zeros(1)), Statistics)


@given(st.lists(anything, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_merging_equals_the_statistics_of_all_parts_together(parts: list[np.ndarray], random: object) -> None:
    whole = TensorStatistics.from_array(np.concatenate(parts), WITH_HISTOGRAM)
    summaries = [TensorStatistics.from_array(part, WITH_HISTOGRAM) for part in parts]
    random.shuffle(summaries)  # type: ignore[attr-defined]
    from_left = reduce(TensorStatistics.merge, summaries)
    from_right = reduce(lambda a, b: b.merge(a), reversed(summaries))
    assert same(from_left, from_right)
    for field in ("minimum", "maximum", "ranks", "counts"):
        assert np.array_equal(getattr(from_left, field), getattr(whole, field))
    assert (from_left.count, from_left.nonfinite) == (whole.count, whole.nonfinite)


@given(st.lists(hnp.arrays(np.float32, (5, 3)), min_size=2, max_size=4), st.sampled_from([0, 1]))
def test_channels_merge_one_by_one(parts: list[np.ndarray], axis: int) -> None:
    request = Observation(axis=axis)
    merged = reduce(TensorStatistics.merge, [TensorStatistics.from_array(part, request) for part in parts])
    values = np.moveaxis(np.stack(parts), axis + 1, 0).reshape(parts[0].shape[axis], -1)
    for channel, row in enumerate(values):
        kept = row[np.isfinite(row)]
        assert merged.minimum[channel] == (kept.min() if kept.size else np.inf)
        assert merged.maximum[channel] == (kept.max() if kept.size else -np.inf)
    assert merged.count + merged.nonfinite == values.size


@given(finite)
@settings(max_examples=300)
def test_histogram_is_exact_against_numpy(values: np.ndarray) -> None:
    edges, counts = TensorStatistics.from_array(values, WITH_HISTOGRAM).histogram()
    assert edges.dtype == np.float64 and counts.dtype == np.int64 and len(edges) == len(counts) + 1
    assert (np.diff(edges) >= 0).all()
    assert edges[0] == values.min() and edges[-1] == values.max()
    assert counts.sum() == values.size and counts[0] > 0 and counts[-1] > 0
    # Bins of positive values own their lower edge, bins of negative values their upper one.
    for index, count in enumerate(counts):
        low, high = edges[index], edges[index + 1]
        above = values > low if low < 0 and index else values >= low
        below = values < high if high > 0 and index + 1 < len(counts) else values <= high
        assert np.count_nonzero(above & below) == count, (low, high)


@given(hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(0.5, 8, width=32)))
def test_positive_values_fall_into_the_bins_numpy_would_choose(values: np.ndarray) -> None:
    edges, counts = TensorStatistics.from_array(values, WITH_HISTOGRAM).histogram()
    unique = np.unique(edges)
    if len(unique) == len(edges):
        assert np.histogram(values, edges)[0].tolist() == counts.tolist()


@given(finite)
def test_bins_are_narrow_and_quantiles_therefore_close(values: np.ndarray) -> None:
    edges, counts = TensorStatistics.from_array(values, WITH_HISTOGRAM).histogram()
    used = counts > 0
    width = np.diff(edges)[used]
    size = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))[used]
    assert (width <= np.maximum(size / 64, 2.0**-125)).all()


def test_zeros_share_a_bin_whatever_their_sign() -> None:
    edges, counts = TensorStatistics.from_array(
        np.array([0.0, -0.0, -0.0], np.float32), WITH_HISTOGRAM
    ).histogram()
    assert edges.tolist() == [0, 0] and counts.tolist() == [3]
    negative_zero = TensorStatistics.from_array(np.array([-0.0], np.float32))
    assert not np.signbit(negative_zero.minimum)


def test_the_values_after_relu_start_at_exactly_zero() -> None:
    values = np.maximum(np.array([-3, 0, 0, 1, 2], np.float32), 0)
    edges, counts = TensorStatistics.from_array(values, WITH_HISTOGRAM).histogram()
    assert edges[0] == 0 and counts[0] == 3
    assert counts[-1] == 1 and edges[-1] == 2


def test_nothing_seen_is_neutral() -> None:
    empty = TensorStatistics.from_array(np.zeros((0, 4)), WITH_HISTOGRAM)
    some = TensorStatistics.from_array(np.array([1.0, -7.5]), WITH_HISTOGRAM)
    assert empty.count == 0 and np.isposinf(empty.minimum) and np.isneginf(empty.maximum)
    assert same(empty.merge(some), some) and same(some.merge(empty), some)
    edges, counts = empty.histogram()
    assert edges.shape == (1,) and counts.shape == (0,)


def test_half_precision_is_widened() -> None:
    halves = np.array([1.5, -65504], np.float16)
    assert same(
        TensorStatistics.from_array(halves, WITH_HISTOGRAM),
        TensorStatistics.from_array(halves.astype(np.float32), WITH_HISTOGRAM),
    )


@given(anything, st.booleans())
def test_survives_a_file(values: np.ndarray, histogram: bool) -> None:
    observation = Observation("histogram" if histogram else "moments")
    statistics = TensorStatistics.from_array(values, observation)
    file = io.BytesIO()
    np.savez(file, **statistics.to_arrays())  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file) as arrays:
        assert same(TensorStatistics.from_arrays(observation, dict(arrays)), statistics)


def test_misuse_is_explained() -> None:
    plain = TensorStatistics.from_array(np.ones(3))
    with pytest.raises(UsageError, match="no histogram was collected; observe one"):
        plain.histogram()
    with pytest.raises(
        UsageError, match=r"a whole tensor \(range\) cannot be merged with .* a whole tensor \(histogram\)"
    ):
        plain.merge(TensorStatistics.from_array(np.ones(3), WITH_HISTOGRAM))
    with pytest.raises(UsageError, match="cannot be merged with statistics of 3 channels"):
        plain.merge(TensorStatistics.from_array(np.ones((2, 3)), Observation(axis=1)))
    with pytest.raises(UsageError, match="axis 2 is outside a tensor of rank 2"):
        TensorStatistics.from_array(np.ones((2, 3)), Observation(axis=2))
    with pytest.raises(DataError, match="lack the field 'maximum'"):
        TensorStatistics.from_arrays(Observation(), {"minimum": np.zeros(())})


def test_what_lies_above_a_limit_has_the_moments_of_all() -> None:
    """The mean of (-1000, 1, 4) does not become another one because -1000 is a mask."""
    values = np.array([-1000, 1, 4], np.float32)
    moments = TensorStatistics.from_array(values, Observation("moments"))
    seen = replace(TensorStatistics.from_array(values, WITH_HISTOGRAM), moments=moments.moments)
    above = seen.above(-100)
    assert above.count == 2 and above.minimum == 1 and above.histogram()[1].sum() == 2
    assert above.mean() == seen.mean() == -995 / 3
    assert above.second_moment() == seen.second_moment()
    assert above.average_range() == seen.average_range()
    none = seen.above(1e9)
    assert none.count == 0 and np.isposinf(none.minimum) and np.isneginf(none.maximum)
    assert none.mean() == seen.mean()
