"""Constants as the numbers that they stand for, and how far two of them are from each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qc.ir.quant.arithmetic import dequantize, spread
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding
from qc.ir.tensor_ref import TensorRef

from .contents import is_stored
from .wiring import Read

_CHUNK = 1 << 20  # elements that are compared at a time
_HALF = 0.5001  # of a step: rounding moves a number by no more, but for the arithmetic


def real_values(read: Read, data: TensorRef) -> np.ndarray:
    """The numbers of a constant; those that its codes stand for, if it is stored in codes.

    Raises:
        UsageError: the scales do not fit the shape of the constant.
        ModelError: it cannot be read.
    """
    encoding = read.quantizations[0].encoding if is_stored(read) else None
    return data.numpy() if encoding is None else dequantize(_codes(data, encoding), encoding)


def _codes(data: TensorRef, encoding: Encoding) -> np.ndarray:
    """The codes of a constant; a Clip may limit them to those of a narrower format."""
    codes, spec = data.numpy(), encoding.spec
    if not isinstance(spec.format, IntFormat) or codes.dtype.kind not in "iu":
        return codes
    has_all = spec.format.bits >= 8 * codes.itemsize and not spec.narrow
    return codes if has_all else np.clip(codes, *spec.code_range)


def rounding_error(read: Read, data: TensorRef) -> np.ndarray:
    """How far rounding can have moved each number of a constant: half a step where it is stored in codes.

    Raises:
        UsageError: the scales do not fit the shape of the constant.
    """
    encoding = read.quantizations[0].encoding if is_stored(read) else None
    if encoding is None:
        return np.zeros((), np.float32)
    return spread(encoding.scale, encoding, data.shape) * np.float32(_HALF)


def limited(values: np.ndarray, read: Read, data: TensorRef) -> np.ndarray:
    """Numbers as they are just before they are rounded to the codes of a constant: none beyond its codes.

    Raises:
        UsageError: the scales do not fit the shape of the constant.
        ModelError: it cannot be read.
    """
    encoding = read.quantizations[0].encoding if is_stored(read) else None
    if encoding is None or not data.size:
        return values
    codes = _codes(data, encoding)
    if not isinstance(encoding.spec.format, IntFormat):
        codes = codes.astype(np.float32)
    of_scales = spread(encoding.scale, encoding, data.shape).shape
    ends = (dequantize(np.full(of_scales, code), encoding) for code in (codes.min(), codes.max()))
    return np.clip(values, *ends)


@dataclass
class Distance:
    """How far two arrays are from each other.

    Attributes:
        size: elements.
        different: elements that differ by more than the tolerance.
        largest: the largest difference; NaN if one of the numbers is.
        signal, noise: sums of squares of the first array and of the difference.
    """

    size: int = 0
    different: int = 0
    largest: float = 0.0
    signal: float = 0.0
    noise: float = 0.0

    @classmethod
    def between(cls, a: np.ndarray, b: np.ndarray, tolerance: np.ndarray) -> Distance:
        """Compares two arrays of one shape; piece by piece, so that large ones take little memory."""
        found = cls(a.size)
        tolerance = np.broadcast_to(tolerance, a.shape).reshape(-1)
        a, b = a.reshape(-1), b.reshape(-1)
        for start in range(0, a.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            if a.dtype == object:
                found.different += int((a[part] != b[part]).sum())
            else:
                found._add(a[part].astype(np.float64), b[part].astype(np.float64), tolerance[part])
        return found

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise in decibels; None where it is not finite."""
        if not (self.signal and self.noise and math.isfinite(self.signal / self.noise)):
            return None
        return 10 * math.log10(self.signal / self.noise)

    def _add(self, a: np.ndarray, b: np.ndarray, tolerance: np.ndarray) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(a - b)
            error[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
            self.different += int((~(error <= tolerance)).sum())
            self.largest = float(np.maximum(self.largest, error.max()))
            self.signal += float(np.square(a).sum())
            self.noise += float(np.square(error).sum())
