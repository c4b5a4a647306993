"""What grids cost, as an executor tells it: bit for bit as in numpy, in every instruction set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import grid_errors

from qc.ir.errors import UsageError
from qc.ir.executor import Observation
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.passes.quantize.calibration.ranges import weight_encoding
from qc.runtime import OrtExecutor
from qc.runtime.native import kernels
from qc.runtime.statistics.tensor import TensorStatistics

SPECS = [
    QuantSpec.of("uint8"),
    QuantSpec.of("int4", symmetric=True, narrow=True),
    QuantSpec.of("uint16"),
    QuantSpec.of("int8", symmetric=True, one_sided=True),
    QuantSpec.of("int2", symmetric=True, shifted=True),
]
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=kernels.instruction_sets(), autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels.use_instruction_set(request.param)
    yield
    kernels.use_instruction_set(kernels.instruction_sets()[0])


@st.composite
def histograms(draw: st.DrawFn) -> TensorStatistics:
    """Of some numbers over many orders of magnitude, or of one number only."""
    scales = draw(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=3))
    count = draw(st.sampled_from([1, 2, 7, 8, 9, 100, 3000]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    numbers = np.concatenate([rng.normal(size=count) * scale for scale in scales])
    shift = draw(st.sampled_from([0.0, 1.0, -100.0]))
    return TensorStatistics.from_array((numbers + shift).astype(np.float32), Observation("histogram"))


@examples
@given(histograms(), st.sampled_from(SPECS[:-1]), st.sampled_from([1.0, 3.0]))
def test_errors_on_a_histogram(seen: TensorStatistics, spec: QuantSpec, clipping: float) -> None:
    fractions = np.geomspace(1.0, 1 / 32, 9)
    grids = encoding_of_range(spec, seen.minimum * fractions, seen.maximum * fractions)
    histogram = seen.histogram()
    expected = grid_errors.histogram_error(*histogram, grids, clipping)
    np.testing.assert_array_equal(OrtExecutor().histogram_error(*histogram, grids, clipping), expected)
    first = Encoding(spec, grids.scale[0], grids.zero_point[0])
    assert OrtExecutor().histogram_error(*histogram, first, clipping) == expected[0]


def granularities(rank: int) -> st.SearchStrategy[Granularity]:
    choices: list[Granularity] = [PerTensor()]
    for axis in range(rank):
        choices += [PerChannel(axis), *(PerBlock(axis, size) for size in (1, 3, 16, 32))]
    return st.sampled_from(choices)


@examples
@given(
    hnp.array_shapes(max_dims=4, max_side=40).filter(lambda shape: np.prod(shape) < 1e5),
    st.sampled_from(SPECS),
    st.data(),
)
def test_errors_of_an_array(shape: tuple[int, ...], spec: QuantSpec, data: st.DataObject) -> None:
    array = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
    spec = spec.with_granularity(data.draw(granularities(len(shape))))
    encoding = weight_encoding(spec, array * np.float32(0.7))  # so that some numbers are clipped
    expected = grid_errors.squared_error(array, encoding)
    found = OrtExecutor().squared_error(array, encoding)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_errors_of_many_elements() -> None:
    array = np.random.default_rng(0).normal(size=(3, 70_001)).astype(np.float32)
    for granularity in (PerTensor(), PerChannel(0), PerChannel(1)):
        encoding = weight_encoding(QuantSpec.of("int4", granularity=granularity), array)
        expected = grid_errors.squared_error(array, encoding)
        np.testing.assert_array_equal(OrtExecutor().squared_error(array, encoding), expected)


def test_a_grid_that_does_not_fit_is_named() -> None:
    array = np.zeros((3, 4), np.float32)
    encoding = encoding_of_range(QuantSpec.of("int8", granularity=PerChannel(1)), np.zeros(3), np.ones(3))
    with pytest.raises(UsageError, match=r"scale has shape \(3,\) but axis 1 of a tensor of shape \(3, 4\)"):
        OrtExecutor().squared_error(array, encoding)
    for format, message in (("int32", "up to 16 bits"), ("float8e4m3fn", "no integer codes")):
        with pytest.raises(UsageError, match=message):
            OrtExecutor().squared_error(
                array, encoding_of_range(QuantSpec.of(format), -array[0, 0], array[0, 0])
            )
