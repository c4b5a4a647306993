"""Quantized weights as objects: the codes of a constant and the grid that they stand on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..base.shown import Shown
from ..errors import UsageError, nearest
from ..model import Model
from ..quant.arithmetic import dequantize, quantize
from ..quant.formats import IntFormat
from ..quant.packing import pack
from ..quant.spec import Encoding, PerBlock, PerChannel, PerTensor, TwoLevelBlock
from ..tensor_ref import TensorRef
from .constants import constant_data
from .scopes import distinct_names, has_wildcard


@dataclass(frozen=True, eq=False)
class QuantizedWeight(Shown):
    """A constant and its grid: code ``q`` stands for ``(q - zero_point) * scale``.

    Codes are computed each time that they are asked for, so that a large model needs no memory for them.

    Attributes:
        name: the tensor.
        source: the numbers before they are quantized.
        encoding: the grid.
        chosen: the codes if an algorithm chose them; otherwise each number gets the nearest code.
    """

    name: str
    source: TensorRef
    encoding: Encoding
    chosen: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.source.shape

    @property
    def format(self) -> str:
        """The number format of a code: ``int8``, ``uint4``, ``float8e4m3fn``."""
        return str(self.encoding.spec.format)

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.encoding.spec.format.bits

    @property
    def qdata(self) -> np.ndarray:
        """The codes, in the shape of the tensor: those that the QDQ model stores.

        Their dtype is the narrowest integer of numpy that holds them (int8 or uint8 for 2 and 4 bits, see
        :attr:`packed`), and the float type itself for float formats.
        """
        format = self.encoding.spec.format
        codes = self._codes()
        if not isinstance(format, IntFormat):
            return codes
        width = max(8, format.storage_bits)
        return codes.astype(f"{'int' if format.signed else 'uint'}{width}")

    @property
    def int_data(self) -> np.ndarray:
        """The codes, as :attr:`qdata`; raises UsageError for a float format, whose codes are no integers."""
        if not isinstance(self.encoding.spec.format, IntFormat):
            raise UsageError(f"'{self.name}' is {self.format}, which has no integer codes; use qdata")
        return self.qdata

    @property
    def tensor_impl(self) -> QuantizedWeight:
        """The weight itself, which older versions of torchao have one level below."""
        return self

    @property
    def packed(self) -> np.ndarray:
        """The bytes of the codes as ONNX stores them: uint8, one dimension, 2- and 4-bit codes packed."""
        format = self.encoding.spec.format
        if format.storage_bits < 8:
            return pack(self.qdata, format.storage_bits)
        codes = np.ascontiguousarray(self.qdata)
        return codes.astype(codes.dtype.newbyteorder("<"), copy=False).view(np.uint8).ravel()

    @property
    def scale(self) -> np.ndarray:
        """float32: ``()``, ``(channels,)``, or the shape of the tensor with ``axis`` divided into blocks."""
        return self.encoding.scale

    @property
    def zero_point(self) -> np.ndarray:
        """int32, in the shape of :attr:`scale`; float32 for a shifted grid, -0.5."""
        encoding = self.encoding
        if encoding.spec.shifted:
            return np.asarray(encoding.zero_point - encoding.spec.shift, np.float32)
        return encoding.zero_point

    @property
    def axis(self) -> int | None:
        """The axis of channels or blocks, counted from the first; None if there is one scale."""
        granularity = self.encoding.spec.granularity
        return None if isinstance(granularity, PerTensor) else granularity.axis % len(self.shape)

    @property
    def block_size(self) -> int | None:
        """Elements of a block along ``axis``; None if there are no blocks."""
        granularity = self.encoding.spec.granularity
        return granularity.size if isinstance(granularity, PerBlock) else None

    @property
    def granularity(self) -> str:
        """``tensor``, ``channel``, ``block`` or ``two-level``."""
        granularity = self.encoding.spec.granularity
        if isinstance(granularity, TwoLevelBlock):
            return "two-level"
        if isinstance(granularity, PerTensor):
            return "tensor"
        return "channel" if isinstance(granularity, PerChannel) else "block"

    def dequantize(self) -> np.ndarray:
        """The float32 numbers that the codes stand for."""
        return dequantize(self._codes(), self.encoding)

    def _codes(self) -> np.ndarray:
        return quantize(self.source.numpy(), self.encoding) if self.chosen is None else self.chosen

    def __repr__(self) -> str:
        return f"<QuantizedWeight '{self.name}': {list(self.shape)} {self.encoding.spec}>"


class Weights(Mapping[str, QuantizedWeight], Shown):
    """The quantized weights of a model by name; an unknown name is a UsageError, and a KeyError with it."""

    def __init__(self, weights: Mapping[str, QuantizedWeight]) -> None:
        self._weights = dict(weights)

    def __getitem__(self, name: str) -> QuantizedWeight:
        if name not in self._weights:
            many = has_wildcard(name)
            hint = "; names are taken one by one, without wildcards" if many else nearest(name, list(self))
            raise UnknownWeightError(f"there is no quantized weight '{name}'{hint}")
        return self._weights[name]

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __repr__(self) -> str:
        return f"<Weights: {', '.join(self)}>"


class UnknownWeightError(UsageError, KeyError):
    """A name that is none of a quantized weight."""

    __str__ = UsageError.__str__


def weights_of(model: Model) -> Weights:
    """All constants that have a grid with numbers, biases included, in the order of the table.

    A constant whose readers hold different grids is here once for each: the first by its name, the others by
    name and reader, such as ``w into MatMul 'm'``.
    """
    names, found = distinct_names(model), {}
    seen: dict[object, set[int]] = {}
    for site in model.quant.sites():
        value, quantizer = site.value.original, model.quant.get(site)
        data = constant_data(value)
        if data is None or quantizer is None or quantizer.encoding is None:
            continue
        known = seen.setdefault(value, set())
        if quantizer.id not in known:
            name = names.get(value, value.name)
            if known and site.op is not None:
                name = f"{name} into {site.op.label}"
            known.add(quantizer.id)
            found[name] = QuantizedWeight(name, data, quantizer.encoding, quantizer.codes)
    return Weights(found)
