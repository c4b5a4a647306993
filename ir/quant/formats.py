"""Number formats a tensor can be quantized to: integers of 2 to 16 bits (32 with a sign) and small floats."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto

from ..errors import UsageError

WIDEST_FREE = 16  # bits; wider integers are for biases, whose scales follow from input and weight


@dataclass(frozen=True)
class IntFormat:
    """A two's complement or unsigned integer of ``bits`` bits."""

    bits: int
    signed: bool

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= (32 if self.signed else WIDEST_FREE):
            raise UsageError(
                f"integer formats have 2 to {WIDEST_FREE} bits, signed ones 2 to 32; there is no {self}"
            )

    @classmethod
    def of_width(cls, bits: int, signed: bool) -> IntFormat:
        """The format of a width, with a sign if it is asked for, or if only signed ones are so wide."""
        return cls(bits, signed or bits > WIDEST_FREE)

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'uint'}{self.bits}"

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of a symmetric grid."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def storage_bits(self) -> int:
        """The width of the ONNX type that holds a code: the smallest of 2, 4, 8, 16, 32 that fits."""
        return next(width for width in (2, 4, 8, 16, 32) if width >= self.bits)

    @property
    def onnx_type(self) -> int:
        """The ``TensorProto`` data type that holds a code."""
        return int(TensorProto.DataType.Value(f"{'INT' if self.signed else 'UINT'}{self.storage_bits}"))


@dataclass(frozen=True)
class FloatFormat:
    """A small floating-point type, named as ONNX and ml_dtypes name it."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in _FLOATS:
            raise UsageError(f"unknown float format '{self.name}'; known: {', '.join(_FLOATS)}")

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        return self.dtype.itemsize * 8

    @property
    def storage_bits(self) -> int:
        return self.bits

    @property
    def dtype(self) -> np.dtype:
        """The numpy (or ml_dtypes) dtype of a code."""
        return np.dtype(_FLOATS[self.name][0])

    @property
    def onnx_type(self) -> int:
        return int(_FLOATS[self.name][1])

    @property
    def scaled(self) -> bool:
        """Whether values are divided by a scale first (8-bit floats) or only rounded (16-bit floats)."""
        return self.bits == 8

    @property
    def highest(self) -> float:
        """The largest finite value."""
        return float(ml_dtypes.finfo(self.dtype).max)


_FLOATS = {
    "float16": (np.float16, TensorProto.FLOAT16),
    "bfloat16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
    "float8e4m3fn": (ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN),
    "float8e5m2": (ml_dtypes.float8_e5m2, TensorProto.FLOAT8E5M2),
}

Format = IntFormat | FloatFormat


def has_limits(format: Format) -> bool:
    """Whether numbers that are too large saturate; in 16-bit floats they become infinite."""
    return isinstance(format, IntFormat) or format.scaled


def holds(format: Format, low: float, high: float) -> bool:
    """Whether the numbers from ``low`` to ``high`` are finite, and stay so when they are rounded."""
    highest = format.highest if isinstance(format, FloatFormat) and not format.scaled else math.inf
    return max(high, -low) <= highest and math.isfinite(low) and math.isfinite(high)


_INTEGER = re.compile(r"(u?)int(\d{1,9})")


def parse_format(text: str) -> Format:
    """Reads ``int8``, ``uint4``, ``float16``, ``float8e4m3fn`` and so on.

    Raises:
        UsageError: the text names no known format.
    """
    match = _INTEGER.fullmatch(text)
    if match:
        return IntFormat(bits=int(match[2]), signed=not match[1])
    if text in _FLOATS:
        return FloatFormat(text)
    raise UsageError(
        f"unknown number format '{text}'; use int2 to int16, uint2 to uint16, {', '.join(_FLOATS)}"
    )


def check_free(format: Format) -> Format:
    """The format; raises UsageError if it is one of biases, whose scales are not free to choose."""
    if format.bits > WIDEST_FREE:
        raise UsageError(
            f"{format} is for biases, which follow from input and weight; the widest is {WIDEST_FREE}"
        )
    return format
