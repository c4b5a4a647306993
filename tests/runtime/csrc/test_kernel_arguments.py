"""Arrays that the native kernels cannot read or write are refused, or read as what they are."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from qc.ir.errors import UsageError
from qc.ir.executor import Observation
from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.runtime.native import kernels

CHANNELS = Observation("gram", axis=1)
ROWS = np.ones((8, 4), np.float32)
LARGE = np.zeros((1 << 22, 4), np.float32)
GRID = Encoding(QuantSpec.of("int8"), np.float32(0.1), np.int32(0))
READ_ONLY = np.zeros(1 << 16, np.int64)
READ_ONLY.flags.writeable = False


def counts(*bins: int) -> np.ndarray:
    return np.array([bins, [1] * len(bins)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.products([LARGE, ROWS], CHANNELS, np.array([len(LARGE) - 1])), "have one shape"),
        (lambda: kernels.products([], CHANNELS, np.array([0])), "have one shape"),
        (lambda: kernels.products([ROWS], CHANNELS, np.array([-(1 << 40), 3])), "out of order, or beyond"),
        (lambda: kernels.products([ROWS], CHANNELS, np.array([1 << 40, 3])), "out of order, or beyond"),
        (lambda: kernels.compare(LARGE, ROWS), "have one shape"),
        (lambda: kernels.add_counts(counts(3, 1 << 40), np.zeros(1 << 16, np.int64)), "bins are 0 to 65535"),
        (lambda: kernels.add_counts(counts(-(1 << 40)), np.zeros(1 << 16, np.int64)), "bins are 0 to 65535"),
        (lambda: kernels.add_counts(np.zeros(2, np.int64), np.zeros(1 << 16, np.int64)), r"shape \(2, n\)"),
        (lambda: kernels.add_counts(counts(0), np.zeros(9, np.int64)), r"of shape \(65536,\)"),
        (lambda: kernels.add_counts(counts(0), np.zeros(1 << 16, np.int32)), "writable int64 array"),
        (lambda: kernels.add_counts(counts(0), READ_ONLY), "writable int64 array"),
        (lambda: kernels.histogram_error(np.linspace(0, 1, 3), np.ones(10), GRID), "10 bins have one edge"),
        (
            lambda: kernels.add_exact(ROWS, np.zeros(3, np.int16), np.zeros((3, 8, 4), np.int64)),
            "top must be",
        ),
        (
            lambda: kernels.add_exact(ROWS, np.zeros((8, 4), np.int16), np.zeros((8, 4), np.int64)),
            "digits must be",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_order_of_bytes_changes_nothing(dtype: type) -> None:
    x = np.linspace(-3, 4, 24, dtype=np.float32).reshape(4, 6).astype(dtype)
    swapped = x.astype(x.dtype.newbyteorder(">")) if dtype is not ml_dtypes.bfloat16 else x
    for given in (swapped, swapped.T):
        found = kernels.fake_quantize(given, GRID)
        assert found.dtype == dtype and found.shape == given.shape
        np.testing.assert_array_equal(found, fake_quantize(np.asarray(given, np.float32), GRID).astype(dtype))
        assert kernels.observe(given).maximum == 4


@pytest.mark.parametrize("array", [ROWS.astype(">f4"), ROWS.astype(np.float64), np.asfortranarray(ROWS)])
def test_products_are_those_of_the_numbers(array: np.ndarray) -> None:
    sums, triangles = kernels.products([array], CHANNELS, np.arange(8))
    assert (sums == 8).all() and (triangles == 8).all()
