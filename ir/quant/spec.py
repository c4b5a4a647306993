"""Specifications, encodings and quantizers: what a tensor is rounded to, and the numbers of that grid."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import numpy as np

from ..errors import UsageError
from .formats import Format, IntFormat, parse_format

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class PerTensor:
    """One scale for the whole tensor."""

    def __str__(self) -> str:
        return "tensor"


@dataclass(frozen=True)
class PerChannel:
    """One scale for each index along ``axis``."""

    axis: int

    def __str__(self) -> str:
        return f"channel({self.axis})"


@dataclass(frozen=True)
class PerBlock:
    """One scale for each run of ``size`` elements along ``axis``, at every index of the other axes."""

    axis: int
    size: int

    def __str__(self) -> str:
        return f"block({self.axis},{self.size})"


@dataclass(frozen=True)
class TwoLevelBlock(PerBlock):
    """Blocks whose scale is an integer, 1 to ``2^scale_bits``, times that of an output channel (LPBQ).

    Output channels lie along axis 1 if the blocks lie along axis 0, else along axis 0. The largest block of a
    channel has the largest integer.
    """

    scale_bits: int

    @property
    def channel_axis(self) -> int:
        """The axis of the output channels."""
        return 1 if self.axis == 0 else 0

    def levels(self, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two levels nearest to the scales of blocks.

        Args:
            scale: one number for each block, in the shape of an encoding's scale.

        Returns:
            The integers, int64 in the shape of ``scale``; and the scales of the channels, float32 of the same
            rank, with length 1 along all other axes. A ``scale`` of two levels is their product.
        """
        most = 1 << self.scale_bits
        others = tuple(axis for axis in range(scale.ndim) if axis != self.channel_axis)
        of_channel = scale.astype(np.float64).max(axis=others, keepdims=True, initial=SMALLEST_NORMAL) / most
        integers = np.clip(np.rint(scale / of_channel), 1, most).astype(np.int64)
        return integers, np.maximum(of_channel, SMALLEST_NORMAL).astype(np.float32)

    def __str__(self) -> str:
        return f"two-level({self.axis},{self.size},{self.scale_bits})"


Granularity = PerTensor | PerChannel | PerBlock


@dataclass(frozen=True)
class QuantSpec:
    """A frozen description of how a tensor is to be quantized; the numbers are in :class:`Encoding`.

    Attributes:
        format: the number format of a code.
        symmetric: real zero is code zero for signed, mid-range for unsigned formats.
        narrow: leave out the lowest code, so that a symmetric grid has as many steps below as above zero.
        one_sided: a symmetric grid for numbers that are never negative begins at zero (unsigned symmetric).
        granularity: per tensor, per channel, per block or in two levels.
        fixed_range: a (minimum, maximum) that overrides what calibration observes; an infinite end does not.
        derived: the scale follows from other quantizers (a bias takes input scale times weight scale).
        shifted: a symmetric int2 grid shifted by half a step: -1.5, -0.5, 0.5 and 1.5 steps, and no zero.
    """

    format: Format
    symmetric: bool = False
    narrow: bool = False
    granularity: Granularity = PerTensor()
    fixed_range: tuple[float, float] | None = None
    derived: bool = False
    one_sided: bool = False
    shifted: bool = False

    def __post_init__(self) -> None:
        if self.shifted and (self.format != IntFormat(2, signed=True) or not self.symmetric or self.narrow):
            raise UsageError(f"only a symmetric grid of int2 is shifted, with all its codes, not {self}")

    @classmethod
    def of(cls, format: str, **fields: object) -> QuantSpec:
        """Builds a spec from the text of a format: ``QuantSpec.of("int8", symmetric=True)``."""
        return cls(parse_format(format), **fields)  # type: ignore[arg-type]

    @property
    def code_range(self) -> tuple[int, int]:
        """The lowest and highest code in use; raises UsageError for a float format."""
        if not isinstance(self.format, IntFormat):
            raise UsageError(f"{self.format} has no integer codes")
        return self.format.lowest + (1 if self.narrow else 0), self.format.highest

    @property
    def shift(self) -> float:
        """The real value of the code ``zero_point``, in steps: 0, or 0.5 if the grid is shifted."""
        return 0.5 if self.shifted else 0.0

    def __str__(self) -> str:
        """All that the spec says, which the text of a model can be read back from."""
        words = {
            str(self.format): True,
            "symmetric": self.symmetric,
            "asymmetric": not self.symmetric and isinstance(self.format, IntFormat),
            "narrow": self.narrow,
            "one-sided": self.one_sided,
            "shifted": self.shifted,
            str(self.granularity): not isinstance(self.granularity, PerTensor),
            f"range({', '.join(map(repr, self.fixed_range or ()))})": self.fixed_range is not None,
            "derived": self.derived,
        }
        return " ".join(word for word, is_said in words.items() if is_said)

    def resized(self, format: IntFormat, narrow: bool) -> QuantSpec:
        """The same in another integer format, narrow as asked if it is symmetric and has codes to spare."""
        return replace(self, format=format, narrow=narrow and self.symmetric and is_fine(format))

    def with_granularity(self, granularity: Granularity) -> QuantSpec:
        """The same spec with another granularity."""
        return replace(self, granularity=granularity)


def is_fine(format: IntFormat) -> bool:
    """Whether a format has so many codes that one can be left out: one of 16 is half a decibel."""
    return format.bits >= 8


@dataclass(frozen=True, eq=False)
class Encoding:
    """The numbers of one grid: a code ``q`` stands for ``(q - zero_point + spec.shift) * scale``.

    Attributes:
        spec: the spec these numbers realize.
        scale: float32; shape ``()`` per tensor, ``(channels,)`` per channel, the tensor's shape with the
            block axis divided (rounded up) by the block size per block; two-level blocks round what they are
            given to two levels. Ones for unscaled float formats.
        zero_point: int32 of the same shape, in the convention of ``spec.format``; zeros for float formats.

    Raises:
        UsageError: a scale is not finite and above zero, a zero point is no code of the format, or the shapes
            differ.
    """

    spec: QuantSpec
    scale: np.ndarray
    zero_point: np.ndarray

    def __post_init__(self) -> None:
        given, zero_point = np.asarray(self.scale), np.asarray(self.zero_point)
        self._check_zero_point(zero_point)  # before int32 would wrap it
        with np.errstate(over="ignore", invalid="ignore"):  # scales are checked below
            object.__setattr__(self, "scale", given.astype(np.float32, copy=False))
            object.__setattr__(self, "zero_point", zero_point.astype(np.int32, copy=False))
        if self.scale.shape != self.zero_point.shape:
            raise UsageError(
                f"scale {self.scale.shape} and zero point {self.zero_point.shape} differ in shape"
            )
        if not (np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise UsageError("every scale must be finite and above zero")
        if isinstance(self.spec.granularity, TwoLevelBlock):
            integers, of_channel = self.spec.granularity.levels(given)
            object.__setattr__(self, "scale", integers.astype(np.float32) * of_channel)

    def _check_zero_point(self, zero_point: np.ndarray) -> None:
        format = self.spec.format
        lowest, highest = (format.lowest, format.highest) if isinstance(format, IntFormat) else (0, 0)
        if not ((zero_point >= lowest) & (zero_point <= highest)).all():
            raise UsageError(f"every zero point of {format} must be {lowest} to {highest}")

    @property
    def minimum(self) -> np.ndarray:
        """The real value of the lowest code; float32, shape of ``scale``."""
        return self._value_of(self._limits()[0])

    @property
    def maximum(self) -> np.ndarray:
        """The real value of the highest code; float32, shape of ``scale``."""
        return self._value_of(self._limits()[1])

    @np.errstate(over="ignore")  # an end of a grid may lie beyond the largest float
    def _value_of(self, code: float) -> np.ndarray:
        steps = code - self.zero_point.astype(np.float64) + self.spec.shift
        return np.asarray(np.asarray(steps, np.float32) * self.scale)

    def _limits(self) -> tuple[float, float]:
        if isinstance(self.spec.format, IntFormat):
            return self.spec.code_range
        return -self.spec.format.highest, self.spec.format.highest

    def channel_scale(self, axis: int | None) -> np.ndarray:
        """The scale that sums of products with a weight have; shape ``()`` per tensor, else ``(channels,)``.

        That of the channel; of blocks the largest in the channel, of two-level blocks the second level.

        Args:
            axis: the channel axis of the weight; None takes all blocks as one channel.
        """
        granularity = self.spec.granularity
        if isinstance(granularity, TwoLevelBlock):
            return granularity.levels(self.scale)[1].ravel()
        if isinstance(granularity, PerBlock):
            others = tuple(other for other in range(self.scale.ndim) if other != axis)
            return np.asarray(self.scale.max(axis=others, initial=0.0))
        return self.scale

    def equals(self, other: Encoding) -> bool:
        """Same spec and, bit for bit, the same numbers."""
        return (
            self.spec == other.spec
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


class QuantizerState(enum.Enum):
    """Where a quantizer stands: its numbers are unknown, known, or known and not to be changed."""

    OPEN = "open"
    CALIBRATED = "calibrated"
    FROZEN = "frozen"


@dataclass(eq=False)
class Quantizer:
    """A spec, its numbers once known, and identity: sites are tied if and only if they hold the same one.

    Attributes:
        codes: the codes of its one tensor, a constant, if an algorithm chose them; int32, in its shape.
            Otherwise each number gets the nearest code.
    """

    id: int
    spec: QuantSpec
    encoding: Encoding | None = None
    frozen: bool = False
    codes: np.ndarray | None = None

    @property
    def name(self) -> str:
        """How remarks, reports and simulations call it: ``q3``."""
        return f"q{self.id}"

    @property
    def is_fixed(self) -> bool:
        """Whether other passes leave its numbers as they are: it is frozen, or its codes were chosen."""
        return self.frozen or self.codes is not None

    @property
    def state(self) -> QuantizerState:
        """Open until it has an encoding; frozen when that may not change any more."""
        if self.frozen:
            return QuantizerState.FROZEN
        return QuantizerState.OPEN if self.encoding is None else QuantizerState.CALIBRATED

    def __str__(self) -> str:
        return f"{self.name} {self.spec} {self.state.value}"


def setting_name(quantizer: str, field: str) -> str:
    """The input of a simulation that holds a field of a quantizer, such as ``q3/scale``."""
    return f"{quantizer}/{field}"


def set_by(setting: str) -> str:
    """The name of the quantizer that such an input belongs to."""
    return setting.rpartition("/")[0]
