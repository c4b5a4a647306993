"""Sums of floats that come out the same, bit for bit, in whatever order and grouping they are added.

A number is cut into digits of 40 bits at fixed places, which are added as integers. Only the three highest
places of the largest number are kept, so an error is at most 2^-80 of that number for each one added. What is
kept depends on the numbers and not on their order. This is the indexed format of Demmel and Nguyen,
"Parallel Reproducible Summation" (IEEE Transactions on Computers 64-7, 2015), with integers in place of their
floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from ..native.kernels import add_exact

_DIGIT = 40  # bits; leaves 2^23 additions before a digit of 64 bits can overflow
_DIGITS = 3
_LOWEST = -27  # below the place of the smallest float64


@dataclass(frozen=True, eq=False)
class ExactSum:
    """Sums of float64 numbers, one for each element of an array.

    Attributes:
        digits: int64 ``(3, *shape)``, the highest first; digit ``i`` is in units of ``2^(40 (top - 1 - i))``.
        top: int16 ``shape``; all numbers that were added are smaller than ``2^(40 top)``.
    """

    digits: np.ndarray
    top: np.ndarray

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> ExactSum:
        """The sums of nothing."""
        return cls(np.zeros((_DIGITS, *shape), np.int64), np.full(shape, _LOWEST, np.int16))

    @classmethod
    def of(cls, numbers: np.ndarray) -> ExactSum:
        """The sums of one number each; finite, of any shape."""
        return cls.zero(np.shape(numbers)).plus(numbers)

    def plus(self, numbers: np.ndarray) -> ExactSum:
        """The sums with one more number each; finite, shapes broadcast.

        They take the memory of these sums where that has their shape, so only the result is to be used again.
        """
        shape = np.broadcast_shapes(self.top.shape, np.shape(numbers))
        sums = self if self.top.shape == shape else self.merge(ExactSum.zero(shape))
        add_exact(np.broadcast_to(numbers, shape), sums.top, sums.digits)
        return sums

    def merge(self, other: ExactSum) -> ExactSum:
        """The sums of all numbers of both; shapes broadcast."""
        top = np.maximum(self.top, other.top)
        return ExactSum(self._digits_from(top) + other._digits_from(top), np.asarray(top))

    def value(self) -> np.ndarray:
        """The sums, float64."""
        high, middle, low = (
            np.ldexp(np.asarray(digit, np.float64), unit)
            for digit, unit in zip(self.digits, _units(self.top), strict=True)
        )
        return np.asarray(high + (middle + low))

    def copy(self, place: int | slice | EllipsisType = ...) -> ExactSum:
        """The same sums in memory of their own, or those at one place of the first axis."""
        return ExactSum(self.digits[:, place].copy(), np.array(self.top[place]))

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Both fields, under keys that begin with ``name``."""
        return {f"{name}_digits": self.digits, f"{name}_top": self.top}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], name: str) -> ExactSum:
        """Reads what :meth:`to_arrays` wrote; raises KeyError if it is not there."""
        return cls(arrays[f"{name}_digits"], arrays[f"{name}_top"])

    def _digits_from(self, top: np.ndarray) -> np.ndarray:
        """The digits counted from another, higher top."""
        drop = top - self.top
        digits = self.digits.reshape(_DIGITS, *[1] * (top.ndim - self.top.ndim), *self.top.shape)
        if not drop.any():
            return digits
        result = np.zeros((_DIGITS, *drop.shape), np.int64)
        for places in range(_DIGITS):
            moved = np.where(drop == places, digits[: _DIGITS - places], 0)
            result[places:] += moved
        return result


def _units(top: np.ndarray) -> list[np.ndarray]:
    """The exponents of the units of the digits."""
    return [_DIGIT * (top.astype(np.int32) - 1 - i) for i in range(_DIGITS)]
