"""The polynomials by which a device finds powers of two and reciprocals.

They are those that the published kernels of the predecessor of Qualcomm's HTP describe (Hexagon NN,
XiaoMi/nnlib, ``hexagon/ops/src/op_softmax_d32.c`` and ``hexagon/include/hvx_mathops.h``).
"""

from __future__ import annotations

import numpy as np

# Bits behind the point of the arguments and of the results.
FRACTION_BITS, RESULT_BITS = 16, 15
# For the four quarters of an interval, of each the coefficients of x^2, x and 1.
_POWER = (4300, 5119, 6087, 7230), (22652, 21816, 19857, 16404), (32769, 32876, 33371, 34675)
_RECIPROCAL = (11794, 6555, 3945, 2530), (-32086, -27318, -22353, -18222), (32769, 32232, 31054, 29548)


def power_of_two(x: np.ndarray) -> np.ndarray:
    """2^x / 2 in units of 2^-15, int64, of ``x`` from 0 to 1 in units of 2^-16, int64."""
    return _polynomial(_POWER, x)


def reciprocal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 / (1 + f), in units of 2^-15, int64, and the exponents of two by which ``x`` is 1 + f, f below 1.

    Args:
        x: float64, finite and above 0; of f 16 bits are taken.
    """
    mantissa, exponent = np.frexp(x)
    fraction = np.floor(np.ldexp(2 * mantissa - 1, FRACTION_BITS)).astype(np.int64)
    return 2 * _polynomial(_RECIPROCAL, fraction), exponent - 1


def _polynomial(coefficients: tuple[tuple[int, ...], ...], x: np.ndarray) -> np.ndarray:
    quarter = x >> (FRACTION_BITS - 2)
    result = np.asarray(coefficients[0])[quarter]
    for numbers in coefficients[1:]:
        result = (result * x + (np.asarray(numbers)[quarter] << RESULT_BITS)) >> FRACTION_BITS
    return result
