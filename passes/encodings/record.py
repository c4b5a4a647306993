"""What an encodings file says about a tensor, whatever its version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from qc.ir.quant.formats import FloatFormat, Format, IntFormat

from .fields import Fields

Granularity = Literal["tensor", "channel", "block", "two-level"]
Layout = Literal["tensors", "layers"]


class Port(NamedTuple):
    """One input or output of a layer, in a layer-centric file.

    Attributes:
        layer: the path of the module, ``layer1.0.conv1``.
        side: ``input`` or ``output``.
        number: from 0; parameters do not count.
    """

    layer: str
    side: str
    number: int

    def __str__(self) -> str:
        return f"{self.layer} {self.side} {self.number}"


@dataclass(frozen=True, eq=False)
class TensorRecord:
    """The grid of one tensor: a code ``q`` stands for ``(q - zero_point) * scale``.

    Attributes:
        name: the tensor.
        format: the number format of a code.
        is_parameter: whether it is a weight or a bias; None if the file does not say.
        symmetric: whether the grid is meant to be symmetric; None if the file does not say.
        granularity: what one scale is for. ``two-level`` has an integer for each block on top of a scale for
            each channel (LPBQ).
        scale: float64: ``()``, ``(channels,)``, or for blocks either as many dimensions as the tensor has
            (``axis`` is known then), or one, output channel by output channel (or, if ``as_stored``, in the
            order of the tensor).
        zero_point: float64, same shape, in the convention of ``format``; halves for a shifted int2 grid.
        axis: the axis of channels or blocks; None if the file does not say.
        block_size: elements in a block; None if the file does not say.
        block_scales: int64, the integers of a two-level grid, shaped as the scale of blocks.
        scale_bits: bits of these integers.
        as_stored: scales of blocks in one dimension follow the memory of the tensor.
        port: where the tensor is in a layer-centric file, which does not name it.
    """

    name: str
    format: Format
    is_parameter: bool | None = None
    symmetric: bool | None = None
    granularity: Granularity = "tensor"
    scale: np.ndarray = field(default_factory=lambda: np.ones(()))
    zero_point: np.ndarray = field(default_factory=lambda: np.zeros(()))
    axis: int | None = None
    block_size: int | None = None
    block_scales: np.ndarray | None = None
    scale_bits: int | None = None
    as_stored: bool = False
    port: Port | None = None

    @property
    def is_integer(self) -> bool:
        """Whether codes are integers."""
        return isinstance(self.format, IntFormat)

    @property
    def has_scale(self) -> bool:
        """Whether the format has a scale: all but 16-bit floats."""
        return not isinstance(self.format, FloatFormat) or self.format.scaled

    @property
    def offset(self) -> np.ndarray:
        """Minus the code of real zero, counted from the lowest code: AIMET's convention, float64."""
        assert isinstance(self.format, IntFormat)
        return np.asarray(self.format.lowest - self.zero_point)

    def by_channel(self, numbers: np.ndarray) -> np.ndarray:
        """Scales or the like in one dimension, output channel by output channel.

        Those of the blocks of a ConvTranspose stay in the order of the tensor, as AIMET writes them.
        """
        if numbers.ndim == 2 and self.axis == 0:  # blocks run along the first axis: output channels are last
            return numbers.T.ravel()
        return np.ravel(numbers)

    @property
    def minimum(self) -> np.ndarray:
        """The real value of the lowest code; float64, shape of ``scale``."""
        assert isinstance(self.format, IntFormat)
        return np.asarray((self.format.lowest - self.zero_point) * self.scale)

    @property
    def maximum(self) -> np.ndarray:
        """The real value of the highest code; float64, shape of ``scale``."""
        assert isinstance(self.format, IntFormat)
        return np.asarray((self.format.highest - self.zero_point) * self.scale)


@dataclass(frozen=True)
class Document:
    """An encodings file.

    Attributes:
        version: ``0.6.1``, ``1.0.0``, ``2.0.0`` or ``2.1.0``.
        records: one for each tensor, in the order of the file.
        source: what messages call it.
        arguments: ``quantizer_args`` of versions 0.6.1 and 1.0.0.
        layout: whether the file lists tensors, or layers with their inputs and outputs.
    """

    version: str
    records: Sequence[TensorRecord]
    source: str = "encodings"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = "tensors"

    def by_name(self) -> dict[str, TensorRecord]:
        """The records by tensor."""
        return {record.name: record for record in self.records}


def integer_record(
    name: str, entry: Fields, bits: int, symmetric: bool, scale: np.ndarray, offset: np.ndarray, **more: Any
) -> TensorRecord:
    """A record from offsets in AIMET's convention: symmetric and wide grids become signed codes.

    Raises:
        UsageError: a zero point is no code of the format; names the file, the tensor and its ``offset``.
    """
    format = IntFormat.of_width(bits, signed=symmetric)
    zero_point = format.lowest - offset
    check_zero_point(entry, "offset", format, zero_point)
    if more.get("granularity") == "two-level":
        check_middle(entry, "offset", format, zero_point)
    return TensorRecord(name, format, symmetric=symmetric, scale=scale, zero_point=zero_point, **more)


def check_zero_point(entry: Fields, key: str, format: Format, zero_point: np.ndarray) -> None:
    """Raises UsageError about the field ``key`` if a zero point lies outside its format."""
    if not isinstance(format, IntFormat):
        if np.any(zero_point):
            raise entry.error(key, "must be 0 for a float type")
        return
    outside = zero_point[(zero_point < format.lowest) | (zero_point > format.highest)]
    if outside.size:
        codes = f"those of {format} are {format.lowest} to {format.highest}"
        raise entry.error(key, f"gives zero the code {outside.flat[0]:.17g}, but {codes}")


def check_middle(entry: Fields, key: str, format: Format, zero_point: np.ndarray) -> None:
    """Raises UsageError about the field ``key`` unless zero is the middle code, as in two-level blocks."""
    middle = format.middle if isinstance(format, IntFormat) else 0
    if np.any(zero_point != middle):
        shown = zero_point[zero_point != middle].flat[0]
        raise entry.error(
            key, f"gives zero the code {shown:g} of {format}; two-level blocks are symmetric, with {middle}"
        )
