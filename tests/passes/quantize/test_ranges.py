"""From what was observed to the numbers of a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import grid_errors

from qc.ir.quant.arithmetic import fake_quantize, quantize
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Granularity, PerBlock, PerChannel, QuantSpec
from qc.passes.quantize.calibration.entropy import BINS, LEVELS, divergences, entropy_range, magnitudes
from qc.passes.quantize.calibration.ranges import (
    mse_encoding,
    mse_range,
    percentile_range,
    weight_encoding,
)
from qc.runtime import OrtExecutor

SPECS = [
    QuantSpec.of(format, symmetric=symmetric, narrow=narrow)
    for format in ("uint8", "int8", "int4", "uint4", "int16", "uint2", "int3")
    for symmetric, narrow in ((False, False), (True, False), (True, True))
] + [
    QuantSpec.of("int8", symmetric=True, one_sided=True),
    QuantSpec.of("uint8", symmetric=True, one_sided=True),
]
numbers = st.floats(-1e4, 1e4, width=32)
spec_choice = st.sampled_from(SPECS)


@dataclass
class Seen:
    """Statistics of an array in memory; the outer bins of its histogram are never empty."""

    array: np.ndarray

    @property
    def minimum(self) -> np.ndarray:
        return np.min(self.array, initial=np.inf)

    @property
    def maximum(self) -> np.ndarray:
        return np.max(self.array, initial=-np.inf)

    @property
    def count(self) -> int:
        return int(self.array.size)

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.array.size:
            return np.zeros(1), np.zeros(0, np.int64)
        if self.minimum == self.maximum:
            return np.asarray([self.minimum, self.maximum], np.float64), np.asarray([self.count])
        counts, edges = np.histogram(self.array.astype(np.float64), bins=200)
        return edges, counts

    def merge(self, other: Seen) -> Seen:
        return Seen(np.concatenate([self.array, other.array]))


def ordered(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(min(a, b)), np.asarray(max(a, b))


@given(spec_choice, numbers, numbers)
def test_a_range_and_zero_are_covered(spec: QuantSpec, a: float, b: float) -> None:
    low, high = ordered(a, b)
    encoding = encoding_of_range(spec, low, high)
    step = float(encoding.scale)
    assert float(encoding.minimum) <= min(float(low), 0) + step * 0.51
    assert float(encoding.maximum) >= max(float(high), 0) - step * 0.51
    first, last = spec.code_range
    assert first <= int(encoding.zero_point) <= last
    assert fake_quantize(np.zeros(3, np.float32), encoding).tolist() == [0, 0, 0]


@given(spec_choice, numbers, numbers)
def test_no_code_is_wasted(spec: QuantSpec, a: float, b: float) -> None:
    low, high = ordered(a, b)
    if max(float(high), 0) - min(float(low), 0) < 0.01:
        return
    encoding = encoding_of_range(spec, low, high)
    ends = quantize(np.asarray([min(low, 0), max(high, 0)], np.float32), encoding)
    first, last = spec.code_range
    if spec.symmetric:
        assert ends[0] <= first + 1 or ends[1] == last
    else:
        assert ends[0] <= first + 1 and ends[1] >= last - 1


def test_a_symmetric_grid_is_centred() -> None:
    for format, centre in (("int8", 0), ("uint8", 128), ("int4", 0), ("uint4", 8)):
        encoding = encoding_of_range(QuantSpec.of(format, symmetric=True), np.asarray(-1.0), np.asarray(3.0))
        assert int(encoding.zero_point) == centre


def test_a_range_without_width_has_a_grid() -> None:
    for low, high in ((0.0, 0.0), (1e-30, 1e-30), (-1e-38, 0.0)):
        for spec in SPECS:
            encoding = encoding_of_range(spec, np.asarray(low), np.asarray(high))
            assert np.isfinite(encoding.scale) and encoding.scale > 0


@pytest.mark.parametrize("format", ["float8e4m3fn", "float8e5m2"])
def test_float8_reaches_the_largest_magnitude(format: str) -> None:
    encoding = encoding_of_range(QuantSpec.of(format), np.asarray(-3.0), np.asarray(2.0))
    rounded = fake_quantize(np.asarray([-3.0, 3.0], np.float32), encoding)
    np.testing.assert_allclose(rounded, [-3.0, 3.0], rtol=1e-6)


# -- percentiles and least squares -----------------------------------------------------------------


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=numbers), st.floats(50, 100))
def test_percentiles_are_inside_the_range(array: np.ndarray, percentile: float) -> None:
    seen = Seen(array)
    low, high = percentile_range(seen, percentile)
    wider_low, wider_high = percentile_range(seen, 100.0)
    assert wider_low <= low + 1e-9 and high <= wider_high + 1e-9 and low <= high
    edges, _ = seen.histogram()
    assert (wider_low, wider_high) == (edges[0], edges[-1])


def test_a_percentile_leaves_outliers_out() -> None:
    array = np.concatenate([np.linspace(-1, 1, 10_000), [1000.0]]).astype(np.float32)
    low, high = percentile_range(Seen(array), 99.9)
    assert low >= -1 and high < 10


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=numbers), spec_choice)
def test_least_squares_are_no_worse_than_the_full_range(array: np.ndarray, spec: QuantSpec) -> None:
    seen = Seen(array)
    edges, counts = seen.histogram()

    def error(low: float, high: float) -> float:
        encoding = encoding_of_range(spec, np.asarray(low), np.asarray(high))
        return float(grid_errors.histogram_error(edges, counts, encoding))

    full = error(float(array.min()), float(array.max()))
    assert error(*mse_range(seen, spec, OrtExecutor())) <= full * (1 + 1e-9) + 1e-12


class Definition(OrtExecutor):
    """Judges grids in numpy."""

    squared_error = staticmethod(grid_errors.squared_error)  # type: ignore[assignment]
    histogram_error = staticmethod(grid_errors.histogram_error)  # type: ignore[assignment]


def searched_twice(seen: Seen, spec: QuantSpec) -> tuple[float, float]:
    """The definition of the search for both ends of a range, with nothing left out."""
    edges, counts = seen.histogram()
    low, high = float(seen.minimum), float(seen.maximum)
    fractions = np.geomspace(1.0, 1.0 / 32.0, 48)

    def best(bottom: np.ndarray | float, top: np.ndarray | float) -> float:
        grids = encoding_of_range(spec, *np.broadcast_arrays(bottom, top))
        return float(fractions[np.argmin(grid_errors.histogram_error(edges, counts, grids))])

    if spec.symmetric:
        fraction = best(low * fractions, high * fractions)
        return low * fraction, high * fraction
    bottom, top = low, high
    for _ in range(2):
        top = high * best(bottom, high * fractions)
        bottom = low * best(low * fractions, top)
    return bottom, top


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=numbers), spec_choice)
def test_the_quick_search_finds_the_range_of_the_whole_one(array: np.ndarray, spec: QuantSpec) -> None:
    for numbers_seen in (array, np.abs(array), -np.abs(array)):
        seen = Seen(numbers_seen)
        assert mse_range(seen, spec, OrtExecutor()) == searched_twice(seen, spec)


def test_least_squares_clip_an_outlier() -> None:
    rng = np.random.default_rng(0)
    array = np.concatenate([rng.normal(size=20_000), [60.0]]).astype(np.float32)
    spec = QuantSpec.of("uint4")
    low, high = mse_range(Seen(array), spec, OrtExecutor())
    full = encoding_of_range(spec, array.min(), array.max())
    chosen = encoding_of_range(spec, np.asarray(low), np.asarray(high))

    def noise(encoding: object) -> float:
        return float(np.mean((array - fake_quantize(array, encoding)) ** 2))  # type: ignore[arg-type]

    assert high < 20 and noise(chosen) < noise(full) / 4


def test_the_error_on_a_histogram_is_that_of_the_values() -> None:
    array = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    counts, edges = np.histogram(array.astype(np.float64), bins=4000)
    for format in ("uint4", "uint8", "int3"):
        encoding = encoding_of_range(QuantSpec.of(format), np.asarray(-2.0), np.asarray(2.5))
        exact = float(np.sum((array - fake_quantize(array, encoding)).astype(np.float64) ** 2))
        assert grid_errors.histogram_error(edges, counts, encoding) == pytest.approx(exact, rel=0.02)


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=numbers), spec_choice)
def test_clipping_that_counts_more_clips_less(array: np.ndarray, spec: QuantSpec) -> None:
    seen = Seen(array)
    edges, counts = seen.histogram()

    def error(low: float, high: float) -> float:
        encoding = encoding_of_range(spec, np.asarray(low), np.asarray(high))
        return float(grid_errors.histogram_error(edges, counts, encoding, clipping=3.0))

    full = error(float(array.min()), float(array.max()))
    assert error(*mse_range(seen, spec, OrtExecutor(), clipping=3.0)) <= full * (1 + 1e-9) + 1e-12


def divergence(shares: np.ndarray, length: int) -> float:
    """The definition of one of :func:`divergences`, bin by bin."""
    clipped = shares[:length].copy()
    level = np.arange(length) * LEVELS // length
    used = clipped > 0
    sums = np.bincount(level, clipped, LEVELS)
    spread = np.where(used, (sums / np.maximum(np.bincount(level, used, LEVELS), 1))[level], 0.0)
    clipped[-1] += shares[length:].sum()
    spread = np.maximum(spread / max(spread.sum(), 1e-9), 1e-9)
    present = clipped > 0
    return float(np.sum(clipped[present] * np.log(clipped[present] / spread[present])))


@pytest.mark.parametrize("count", [1, 3, 40, 30_000])
def test_divergences_of_all_lengths(count: int) -> None:
    shares = magnitudes(Seen(np.random.default_rng(count).standard_t(2, count).astype(np.float32)))
    lengths = np.arange(LEVELS, BINS + 1, 7)
    expected = [divergence(shares, int(length)) for length in lengths]
    np.testing.assert_allclose(divergences(shares, lengths), expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(hnp.arrays(np.float32, st.integers(1, 60), elements=numbers))
def test_entropy_is_no_worse_than_the_full_range(array: np.ndarray) -> None:
    seen = Seen(array)
    low, high = entropy_range(seen)
    assert array.min() <= low <= high <= array.max()
    reach = float(np.abs(array).max())
    if reach > 0:
        shares = magnitudes(seen)
        length = round(max(-low, high) / reach * BINS)
        assert shares.sum() == pytest.approx(1.0)
        assert divergence(shares, length) <= divergence(shares, BINS) + 1e-12
        assert shares[:length].sum() >= 0.999 - 1e-9


def test_entropy_leaves_an_outlier_out() -> None:
    array = np.concatenate([np.random.default_rng(0).normal(size=20_000), [60.0]]).astype(np.float32)
    low, high = entropy_range(Seen(array))
    assert -5 < low < -3 and 3 < high < 20


def test_a_one_sided_grid_begins_at_zero_unless_something_is_negative() -> None:
    for format, lowest, centre in (("int8", -128, 0), ("uint8", 0, 128)):
        spec = QuantSpec.of(format, symmetric=True, one_sided=True)
        low, high = np.asarray([0.5, -1.0]), np.asarray([2.55, 1.0])
        encoding = encoding_of_range(spec, low, high)
        assert encoding.zero_point.tolist() == [lowest, centre]
        assert float(encoding.scale[0]) == pytest.approx(0.01)


def test_nothing_was_seen() -> None:
    seen = Seen(np.zeros(0, np.float32))
    assert percentile_range(seen, 99.0) == (0.0, 0.0)


# -- weights ---------------------------------------------------------------------------------------


@given(hnp.arrays(np.float32, (4, 6), elements=numbers), spec_choice)
def test_weights(array: np.ndarray, spec: QuantSpec) -> None:
    for granularity, shape in ((PerChannel(0), (4,)), (PerChannel(1), (6,)), (PerBlock(1, 4), (4, 2))):
        own = spec.with_granularity(granularity)
        full, searched = weight_encoding(own, array), mse_encoding(own, array, OrtExecutor())
        assert full.scale.shape == searched.scale.shape == shape

        def noise(numbers: object) -> float:
            error = array - fake_quantize(array, numbers).astype(np.float64)  # type: ignore[arg-type]
            return float(np.sum(error**2))

        assert noise(searched) <= noise(full) * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize("spec", SPECS[::4], ids=str)
@pytest.mark.parametrize("granularity", [PerChannel(1), PerBlock(0, 3)], ids=str)
def test_weights_are_searched_by_the_definition(spec: QuantSpec, granularity: Granularity) -> None:
    array = np.random.default_rng(0).standard_t(2, (16, 24)).astype(np.float32)
    own = spec.with_granularity(granularity)
    assert mse_encoding(own, array, OrtExecutor()).equals(mse_encoding(own, array, Definition()))


def test_channels_have_their_own_range() -> None:
    array = np.asarray([[1, -1], [100, 50]], np.float32)
    encoding = weight_encoding(
        QuantSpec.of("int8", symmetric=True, narrow=True, granularity=PerChannel(0)), array
    )
    np.testing.assert_allclose(encoding.scale, [1 / 127, 100 / 127], rtol=1e-6)
    np.testing.assert_array_equal(quantize(array, encoding), [[127, -127], [127, 64]])
