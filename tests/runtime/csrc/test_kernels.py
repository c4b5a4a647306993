"""The native kernels against their numpy definition, bit for bit, in every instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qc.ir.errors import UsageError
from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.runtime.native import kernels

INTEGERS = [f"{sign}int{bits}" for bits in range(2, 17) for sign in ("", "u")]
FLOATS = ["float16", "bfloat16", "float8e4m3fn", "float8e5m2"]
EXTREMES = [0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.1754944e-38, 3.4e38, -3.4e38]
OVERFLOWS = [65504, 65519.996, 65520, 65536, 448, 464, 465, 480, 57344, 61440, 61441]  # of the float formats
SUBNORMALS = [2**-24, 2**-25, 2**-25 * 1.0000001, 2**-14, 2**-9, 2**-10, 2**-16, 2**-17, 3 * 2**-17]
WHOLE = PerTensor()
SPECIAL = np.array([*EXTREMES, *OVERFLOWS, *SUBNORMALS], np.float32)


@pytest.fixture(params=kernels.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    kernels.use_instruction_set(request.param)
    yield request.param
    kernels.use_instruction_set(kernels.instruction_sets()[0])


every_instruction_set = pytest.mark.usefixtures("instruction_set")
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal dtype, shape and bits; of a NaN only that it is one."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    kind = np.uint32 if actual.itemsize == 4 else np.uint16
    same = np.asarray(actual).view(kind) == np.asarray(expected).view(kind)
    same |= np.isnan(actual) & np.isnan(expected)
    wrong = np.argwhere(~same)[:5]
    assert same.all(), [(tuple(i), actual[tuple(i)], expected[tuple(i)]) for i in wrong]


def grid(format: str, scale: Any, zero_point: Any, granularity: Granularity = WHOLE) -> Encoding:
    return Encoding(QuantSpec.of(format, granularity=granularity), np.asarray(scale), np.asarray(zero_point))


def reference(x: np.ndarray, encoding: Encoding, rounding: Rounding = Rounding.HALF_EVEN) -> np.ndarray:
    with np.errstate(all="ignore"):
        return arithmetic.fake_quantize(x, encoding, rounding).astype(x.dtype)


def parameter_shape(shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    if isinstance(granularity, PerChannel):
        return (shape[granularity.axis],)
    if isinstance(granularity, PerBlock):
        axis = granularity.axis % len(shape)
        return tuple(-(-n // granularity.size) if i == axis else n for i, n in enumerate(shape))
    return ()


def make_encoding(format: str, shape: tuple[int, ...], granularity: Granularity, seed: int) -> Encoding:
    """An encoding with scales of many magnitudes."""
    rng = np.random.default_rng(seed)
    spec = QuantSpec.of(format, granularity=granularity, narrow=bool(seed % 2))
    size = parameter_shape(shape, granularity)
    scale = np.exp2(rng.uniform(-20, 5, size)).astype(np.float32)
    if isinstance(spec.format, IntFormat):
        zero_point = rng.integers(spec.format.lowest, spec.format.highest + 1, size)
    else:
        zero_point = np.zeros(size, np.int64)
        scale = scale if spec.format.scaled else np.ones_like(scale)
    return Encoding(spec, scale, zero_point)


def near_ties(encoding: Encoding, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Float32 values on, just below and just above the borders between codes, and beyond the range."""
    rng = np.random.default_rng(seed)
    scale = arithmetic.spread(encoding.scale, encoding, shape)
    half_steps = (
        rng.integers(-(2**encoding.spec.format.bits) - 9, 2**encoding.spec.format.bits + 9, shape) * 2
    )
    if isinstance(encoding.spec.format, IntFormat):
        borders = rng.choice(encoding.spec.code_range, shape) * 2 + rng.integers(-3, 4, shape)
        zero_point = arithmetic.spread(encoding.zero_point, encoding, shape)
        half_steps = np.where(rng.random(shape) < 0.3, borders - 2 * zero_point, half_steps + 1)
    x = (half_steps / 2 * scale).astype(np.float32)
    with np.errstate(all="ignore"):
        moved = np.nextafter(x, np.where(rng.random(shape) < 0.5, np.inf, -np.inf).astype(np.float32))
        x = np.where(rng.random(shape) < 0.6, moved, x)
    special = rng.random(shape) < 0.15
    return np.where(special, rng.choice(SPECIAL, shape), x).astype(np.float32)


@st.composite
def shapes_and_granularities(draw: st.DrawFn) -> tuple[tuple[int, ...], Granularity]:
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    if draw(st.booleans()):
        shape = (*shape[:2], draw(st.integers(0, 70)))
    if not shape:
        return shape, PerTensor()
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    block = draw(st.integers(1, 12))
    granularities: list[Granularity] = [PerTensor(), PerChannel(axis), PerBlock(axis, block)]
    return shape, draw(st.sampled_from(granularities))


@every_instruction_set
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("format", [*INTEGERS, *FLOATS])
def test_every_format_equals_the_definition(format: str, rounding: Rounding) -> None:
    for granularity in (PerTensor(), PerChannel(0), PerChannel(-1), PerBlock(1, 5), PerBlock(-1, 16)):
        shape = (3, 7, 41)
        encoding = make_encoding(format, shape, granularity, seed=len(str(granularity)))
        x = near_ties(encoding, shape, seed=1)
        assert_same_bits(kernels.fake_quantize(x, encoding, rounding), reference(x, encoding, rounding))


@every_instruction_set
@examples
@given(
    st.sampled_from([*INTEGERS, *FLOATS]),
    shapes_and_granularities(),
    st.sampled_from(Rounding),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_axis_and_dtype_equals_the_definition(
    format: str, layout: tuple[tuple[int, ...], Granularity], rounding: Rounding, dtype: Any, seed: int
) -> None:
    shape, granularity = layout
    encoding = make_encoding(format, shape, granularity, seed)
    with np.errstate(all="ignore"):
        x = near_ties(encoding, shape, seed).astype(dtype)
    assert_same_bits(kernels.fake_quantize(x, encoding, rounding), reference(x, encoding, rounding))


@every_instruction_set
@examples
@given(
    st.sampled_from([*INTEGERS, "float8e4m3fn", "float8e5m2"]),
    st.sampled_from(Rounding),
    st.integers(1, 0x7F7FFFFF),
    st.integers(0, 2**32 - 1),
)
def test_any_bits_with_any_scale_equal_the_definition(
    format: str, rounding: Rounding, scale_bits: int, seed: int
) -> None:
    scale = np.uint32(scale_bits).view(np.float32)
    x = np.random.default_rng(seed).integers(0, 2**32, 999, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        x[:200] = (np.arange(-100, 100) * np.float32(0.5)) * scale
    zero_point = min(seed % 7, int(parse_format(format).highest)) if format in INTEGERS else 0
    encoding = grid(format, scale, zero_point)
    assert_same_bits(kernels.fake_quantize(x, encoding, rounding), reference(x, encoding, rounding))


def hard_quotients() -> tuple[np.ndarray, np.ndarray]:
    """All float32 x and scale, up to powers of two, whose quotient is nearest to a neighbour of a tie.

    With the significands X and S as integers of 24 bits, M one of 25 bits for the middle between the float32
    of a tie and the next one, and a small d: X * 2^24 = M * S + d, or X * 2^25 if the quotient is below one.
    M is odd, so that M and d determine S.
    """
    ties = (2 * np.arange(1 << 16, dtype=np.int64) + 1).astype(np.float32)  # twice the quotient
    below, above = np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))
    middle = np.concatenate([ties.astype(np.float64) + below, ties.astype(np.float64) + above]) / 2
    significand, exponent = np.frexp(middle)
    m = np.ldexp(significand, 25).astype(np.int64)
    inverse = m.copy()  # modulo 8, and with twice as many bits after each step
    for _ in range(4):
        inverse = inverse * (2 - m * inverse) & (1 << 25) - 1
    found = []
    for d in (d for d in range(-7, 8) if d):
        for bits in (24, 25):
            s = -d * inverse & (1 << bits) - 1
            x = m * s + d >> bits
            fits = (x * 2**bits == m * s + d) & (x >> 23 == 1) & (s >> 23 == 1)
            size = np.ldexp(1.0, exponent[fits] - 2 - (24 - bits))  # of the quotient, halved again
            found.append((x[fits] * size, s[fits].astype(np.float64)))
    x, s = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return x.astype(np.float32), s.astype(np.float32)


@every_instruction_set
@pytest.mark.parametrize("rounding", Rounding)
def test_quotients_that_are_hard_to_round(rounding: Rounding) -> None:
    x, scale = hard_quotients()
    assert len(x) > 500_000
    for sign, zero_point in ((1, 0), (-1, 65535)):
        encoding = grid("uint16", scale, np.full(len(scale), zero_point), PerChannel(0))
        numbers = (sign * x).astype(np.float32)
        assert_same_bits(
            kernels.fake_quantize(numbers, encoding, rounding), reference(numbers, encoding, rounding)
        )


@every_instruction_set
@pytest.mark.parametrize("format", FLOATS)
def test_every_exponent_and_border_of_a_float_format(format: str) -> None:
    bits = np.arange(0, 2**32, 2**12 - 1, dtype=np.uint64).astype(np.uint32)
    halves = np.arange(2**16, dtype=np.uint32) << 16
    x = np.concatenate([bits, halves, halves + 0x8000, halves + 0x7FFF, halves + 0x8001]).view(np.float32)
    encoding = grid(format, 1, 0)
    assert_same_bits(kernels.fake_quantize(x, encoding), reference(x, encoding))


@every_instruction_set
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_sixteen_bit_float_is_widened_and_narrowed_exactly(dtype: Any) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    for format in FLOATS:
        encoding = grid(format, 1, 0)
        assert_same_bits(kernels.fake_quantize(x, encoding), reference(x, encoding))


# Scales whose multiples lie half way between numbers of 16 bits, normal or not, and where those overflow.
@every_instruction_set
@pytest.mark.parametrize("scale", [2049 / 2048, 1.5 + 2**-8, 2**-25, 3 * 2**-26, 65519.5, 65520.0, 3e38])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_results_are_rounded_to_sixteen_bits(dtype: Any, scale: float) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    encoding = grid("int16", scale, 1)
    assert_same_bits(kernels.fake_quantize(x, encoding), reference(x, encoding))


def test_long_rows_of_sixteen_bit_floats() -> None:
    x = (np.random.default_rng(4).standard_normal((3, 2500)) * 9).astype(np.float16)
    for granularity in (PerTensor(), PerChannel(1), PerChannel(0), PerBlock(0, 2), PerBlock(1, 1100)):
        encoding = make_encoding("int8", x.shape, granularity, seed=2)
        assert_same_bits(kernels.fake_quantize(x, encoding), reference(x, encoding))
    assert np.array_equal(kernels.observe(x, axis=1).minimum, x.min(0))
    assert np.array_equal(kernels.observe(x, axis=0).maximum, x.max(1))


def test_ties_go_to_even_away_from_zero_or_up() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    encoding = grid("int8", 1, 0)
    assert kernels.fake_quantize(x, encoding).tolist() == [-2, -2, 0, 0, 2, 2]
    assert kernels.fake_quantize(x, encoding, Rounding.HALF_AWAY).tolist() == [-3, -2, -1, 1, 2, 3]
    assert kernels.fake_quantize(x, encoding, Rounding.HALF_UP).tolist() == [-2, -1, 0, 1, 2, 3]


def test_not_a_number_becomes_the_lowest_code() -> None:
    encoding = grid("int4", 0.5, 3)
    assert kernels.fake_quantize(np.array([np.nan], np.float32), encoding).tolist() == [(-8 - 3) * 0.5]


def test_arrays_that_are_not_contiguous_and_scalars() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    encoding = grid("int8", np.full(6, 0.7), np.zeros(6), PerChannel(0))
    assert_same_bits(kernels.fake_quantize(x.T, encoding), reference(x.T, encoding))
    scalar = kernels.fake_quantize(np.array(0.4, np.float32), grid("int8", 1, 0))
    assert scalar.shape == ()


@pytest.mark.parametrize(
    ("array", "encoding", "message"),
    [
        (np.zeros(3), grid("int8", 1, 0), "float64 are not supported"),
        (np.zeros(3, np.float32), grid("int32", 1, 0), "not for int32"),
        (
            np.zeros((2, 3), np.float32),
            grid("int8", np.ones(2), np.zeros(2), PerChannel(1)),
            r"scale has shape \(2,\) but axis 1 of a tensor of shape \(2, 3\) needs \(3,\)",
        ),
        (
            np.zeros((2, 3), np.float32),
            grid("int8", np.ones((2, 1)), np.zeros((2, 1)), PerBlock(1, 2)),
            "does not fit blocks of 2 along axis 1",
        ),
        (
            np.zeros(3, np.float32),
            grid("int8", np.ones(2), np.zeros(2)),
            "one for the tensor",
        ),
        (
            np.zeros(3, np.float32),
            grid("int8", np.ones(2), np.zeros(2), PerChannel(1)),
            "axis is 1, outside",
        ),
        (
            np.zeros(3, np.float32),
            Encoding(QuantSpec.of("int2", symmetric=True, shifted=True), np.float32(1), np.int32(0)),
            "the kernels know no shifted grids",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(array: np.ndarray, encoding: Encoding, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kernels.fake_quantize(array, encoding)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(UsageError, match="baseline"):
        kernels.use_instruction_set("abacus")


def expected_histogram(x: np.ndarray) -> np.ndarray:
    finite = x.astype(np.float32)[np.isfinite(x)]
    return np.bincount(finite.view(np.uint32) >> 16, minlength=kernels.HISTOGRAM_BINS)


@every_instruction_set
@examples
@given(
    shapes_and_granularities(),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_observed_statistics_equal_numpy(
    layout: tuple[tuple[int, ...], Granularity], dtype: Any, dirt: float, seed: int
) -> None:
    shape, granularity = layout
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32) * np.float32(10 ** rng.uniform(-3, 3))
    with np.errstate(all="ignore"):
        x = np.where(rng.random(shape) < dirt, rng.choice(SPECIAL, shape), x).astype(dtype)
    axis = None if isinstance(granularity, PerTensor) else granularity.axis
    seen = kernels.observe(x, histogram=True, axis=axis)
    others = None if axis is None else tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    wide, finite = x.astype(np.float32), np.isfinite(x)
    assert np.array_equal(seen.minimum, np.min(np.where(finite, wide, np.inf), others, initial=np.inf))
    assert np.array_equal(seen.maximum, np.max(np.where(finite, wide, -np.inf), others, initial=-np.inf))
    assert (seen.count, seen.nonfinite) == (finite.sum(), (~finite).sum())
    assert seen.histogram is not None
    assert np.array_equal(seen.histogram, expected_histogram(x))


@every_instruction_set
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_observations_of_halves_merge_to_the_whole(axis: int | None) -> None:
    x = np.random.default_rng(5).standard_normal((1001, 703)).astype(np.float32)
    x[17, 5], x[1000, 702], x[600, 0] = np.nan, np.inf, -np.inf
    whole = kernels.observe(x, histogram=True, axis=axis)
    first, second = (kernels.observe(part, True, axis) for part in (x[:, :300], x[:, 300:]))
    if axis == 1:
        assert np.array_equal(np.concatenate([first.minimum, second.minimum]), whole.minimum)
        assert np.array_equal(np.concatenate([first.maximum, second.maximum]), whole.maximum)
    else:
        assert np.array_equal(np.minimum(first.minimum, second.minimum), whole.minimum)
        assert np.array_equal(np.maximum(first.maximum, second.maximum), whole.maximum)
    assert first.count + second.count == whole.count == x.size - 3
    assert first.nonfinite + second.nonfinite == whole.nonfinite == 3
    assert first.histogram is not None and second.histogram is not None and whole.histogram is not None
    assert np.array_equal(first.histogram + second.histogram, whole.histogram)
    assert np.array_equal(whole.histogram, expected_histogram(x))


def test_nothing_finite_has_an_empty_range() -> None:
    seen = kernels.observe(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert (seen.minimum.item(), seen.maximum.item()) == (np.inf, -np.inf)
    assert (seen.count, seen.nonfinite) == (0, 3)
    assert seen.histogram is None


def test_observe_refuses_other_dtypes_and_axes() -> None:
    with pytest.raises(UsageError, match="int32 are not supported"):
        kernels.observe(np.zeros(3, np.int32))
    with pytest.raises(UsageError, match="axis 1 is outside"):
        kernels.observe(np.zeros(3, np.float32), axis=1)


@pytest.mark.parametrize(("shape", "axis"), [((50000, 7), 0), ((50000, 7), 1), ((3 << 18,), None)])
def test_equal_values_are_counted_in_any_number(shape: tuple[int, ...], axis: int | None) -> None:
    x = np.full(shape, 1.5, np.float32)
    seen = kernels.observe(x, histogram=True, axis=axis)
    assert seen.histogram is not None
    assert np.array_equal(seen.histogram, expected_histogram(x))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1003])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_a_difference_is_the_sums_of_its_definition_in_every_instruction_set(size: int, dtype: Any) -> None:
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size).astype(dtype)
    y = np.where(rng.random(size) < 0.5, x, rng.standard_normal(size).astype(dtype))
    wide, other = x.astype(float), y.astype(float)
    found = set()
    for name in kernels.instruction_sets():
        kernels.use_instruction_set(name)
        one = kernels.compare(x, y)
        found.add((one.signal, one.energy, one.product, one.noise, one.largest, one.equal))
    kernels.use_instruction_set(kernels.instruction_sets()[0])
    ((*sums, largest, equal),) = found
    terms = (wide * wide, other * other, wide * other, (wide - other) ** 2)
    assert sums == pytest.approx([np.sum(term) for term in terms])
    assert (largest, equal) == (np.max(np.abs(wide - other), initial=0), np.count_nonzero(x == y))


@every_instruction_set
@pytest.mark.parametrize("place", [0, 8, 1002])
@pytest.mark.parametrize("pair", [(np.nan, 1), (1, np.nan), (np.inf, np.inf), (0, -np.inf)])
def test_the_noise_of_what_is_not_finite_is_not_finite(place: int, pair: tuple[float, float]) -> None:
    x, y = np.ones(1003, np.float32), np.ones(1003, np.float32)
    x[place], y[place] = pair
    assert not np.isfinite(kernels.compare(x, y).noise)
