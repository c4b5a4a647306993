"""Reads how ops quantize a tensor: QuantizeLinear and DequantizeLinear, stored codes, and simulations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from ..errors import UsageError
from ..graph import Op, Value
from ..quant.formats import Format, IntFormat, parse_format
from ..quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, Quantizer, QuantSpec
from ..value_type import Shape
from .clipped_codes import code_clip
from .constants import constant_data, constant_numbers
from .two_level import TwoLevelScale, two_level_scale

_DOMAINS = ("", "com.microsoft")
_SUFFIXES = ("_quantized", "_q", "_DequantizeLinear_Output", "_dequantized")  # of qc, ONNX Runtime, AIMET


@dataclass(frozen=True, eq=False)
class Quantization:
    """How a tensor is quantized and dequantized again.

    Attributes:
        spec: the format.
        encoding: the numbers; None for a quantizer that is not calibrated.
        quantizer: the quantizer of the IR; None if ops do it.
        stored: whether the tensor is a constant that holds codes instead of real numbers. Those beyond the
            codes of the format stand for the nearest of them.
        ops: the ops that do it.
        narrow: whether the lowest code is left out; None for a QDQ pair on a constant, which cannot tell.
    """

    spec: QuantSpec
    encoding: Encoding | None
    quantizer: Quantizer | None = None
    stored: bool = False
    ops: tuple[Op, ...] = ()
    narrow: bool | None = None

    @cached_property
    def grid(self) -> Hashable:
        """Equal for those that round to the same numbers, ``narrow`` aside; without numbers, for one spec."""
        if self.encoding is None:
            return self.spec
        scale, zero_point = self.encoding.scale, self.encoding.zero_point
        granularity = str(self.spec.granularity) if scale.size > 1 else ""  # one number fits all of them
        kind = str(self.spec.format), self.spec.shifted, granularity
        return *kind, scale.tobytes(), zero_point.tobytes()


def is_qdq(op: Op, op_type: str) -> bool:
    """Whether an op is the QuantizeLinear or DequantizeLinear of ONNX, or that of ONNX Runtime."""
    return op.op_type == op_type and op.domain in _DOMAINS


def narrows_codes(op: Op) -> bool:
    """Whether an op limits codes that are only dequantized to those of a narrower format."""
    clip = code_clip(op)
    readers = clip.result.uses if clip is not None and clip.format is not None else []
    return bool(readers) and all(is_qdq(use.op, "DequantizeLinear") for use in readers)


def float_name(codes: str, result: str = "") -> str:
    """The name that a float tensor probably had, by that of its codes or of what is made float of them."""
    for name in (codes, result):
        for suffix in _SUFFIXES:
            if name.endswith(suffix) and name != suffix:
                return name.removesuffix(suffix)
    return result or f"{codes}_float"


class QdqReader:
    """Reads ops that quantize or dequantize, and remembers what it found."""

    def __init__(self) -> None:
        self._found: dict[Op, tuple[Value, Quantization] | None] = {}
        self._encodings: dict[_Given, Encoding | None] = {}

    def quantization(self, op: Op) -> tuple[Value, Quantization] | None:
        """The tensor that ``op`` gives back quantized, and how; None if it does something else."""
        if op not in self._found:
            self._found[op] = self._read(op)
        return self._found[op]

    def encoding(self, op: Op) -> Encoding | None:
        """The numbers of a QuantizeLinear or DequantizeLinear.

        None if they are computed, invalid, or of an element type that qc does not know. A list of one scale
        is meant per channel where there is one channel, and per tensor everywhere else.
        """
        x, scale, zero_point = (*op.inputs, None, None)[:3]
        shape = x.type.shape if x is not None else None
        axis, block_size = op.attribute("axis", 1), op.attribute("block_size", 0)
        if shape is not None and -len(shape) <= axis < 0:
            axis += len(shape)
        channels = shape[axis] if shape is not None and 0 <= axis < len(shape) else None
        codes = _code_type(op, x, zero_point)
        given = _Given(_original(scale), _original(zero_point), axis, block_size, channels == 1, codes)
        if given not in self._encodings:
            self._encodings[given] = _encoding(given)
        found = self._encodings[given]
        return found if found is None or shape is None or _fits(found, shape) else None

    def _read(self, op: Op) -> tuple[Value, Quantization] | None:
        if op.domain == "qc" and op.op_type == "FakeQuantize":
            return _simulated(op)
        if not is_qdq(op, "DequantizeLinear"):
            return None
        codes, encoding = op.inputs[0], self.encoding(op)
        if codes is None or encoding is None:
            return None
        clip = code_clip(codes.producer)
        grid = clip.narrowed(encoding) if clip is not None else encoding
        between = (clip.op,) if clip is not None else ()
        codes = clip.source if clip is not None else codes
        if grid is None:
            return None
        if constant_data(codes) is not None:
            return codes, Quantization(grid.spec, grid, stored=True, ops=(*between, op))
        producer = codes.producer
        if producer is None or not is_qdq(producer, "QuantizeLinear"):
            return None
        source, before = producer.inputs[0], self.encoding(producer)
        if source is None or before is None or not (before is encoding or before.equals(encoding)):
            return None
        narrow = None if constant_data(source) is not None else grid.spec.narrow
        return source, Quantization(grid.spec, grid, ops=(producer, *between, op), narrow=narrow)


class _Given(NamedTuple):
    """What the numbers of an op follow from; ``codes`` is their element type."""

    scale: Value | None
    zero_point: Value | None
    axis: int
    block_size: int
    one_channel: bool
    codes: int


def _original(value: Value | None) -> Value | None:
    return value.original if value is not None else None


def _code_type(op: Op, x: Value | None, zero_point: Value | None) -> int:
    """The element type of the codes."""
    if zero_point is not None:
        data = constant_data(zero_point)
        return data.data_type if data is not None else 0
    if op.op_type == "DequantizeLinear":
        return x.type.elem_type if x is not None else 0
    return int(op.attribute("output_dtype", 0)) or TensorProto.UINT8


def _encoding(given: _Given) -> Encoding | None:
    levels = two_level_scale(given.scale) if given.block_size else None
    numbers = levels.scale if levels is not None else constant_numbers(given.scale)
    zeros = constant_numbers(given.zero_point)
    if numbers is None or (zeros is None and given.zero_point is not None):
        return None
    if zeros is None:
        zeros = np.zeros(numbers.shape, np.int32)
    if not given.block_size and numbers.shape == (1,) and (zeros.ndim == 0 or not given.one_channel):
        numbers, zeros = numbers.reshape(()), zeros.reshape(())  # ONNX Runtime writes one scale as a list
    try:
        format = parse_format(TensorProto.DataType.Name(given.codes).lower())
        spec = _spec(format, _granularity(given.axis, given.block_size, numbers.ndim, levels), zeros)
        return Encoding(spec, numbers, zeros)
    except (UsageError, ValueError):  # a type, scale or shape that qc does not know
        return None


def _fits(encoding: Encoding, shape: Shape) -> bool:
    """Whether a tensor has the axis of a grid, and a channel for each scale."""
    granularity = encoding.spec.granularity
    if isinstance(granularity, PerTensor):
        return True
    if not 0 <= granularity.axis < len(shape):
        return False
    channels = shape[granularity.axis]
    return (
        isinstance(granularity, PerBlock)
        or not isinstance(channels, int)
        or encoding.scale.shape == (channels,)
    )


def _granularity(axis: int, block_size: int, rank: int, levels: TwoLevelScale | None = None) -> Granularity:
    if levels is not None:
        return levels.granularity(axis, block_size)
    if block_size:
        return PerBlock(axis, block_size)
    return PerChannel(axis) if rank else PerTensor()


def _spec(
    format: Format, granularity: Granularity, zero_point: np.ndarray, narrow: bool = False
) -> QuantSpec:
    """The spec of a grid, which is symmetric if zero is in the middle of its codes."""
    symmetric = isinstance(format, IntFormat) and bool((zero_point.astype(np.int64) == format.middle).all())
    return QuantSpec(format, symmetric, narrow, granularity)


def _simulated(op: Op) -> tuple[Value, Quantization] | None:
    """A qc::FakeQuantize whose scale, zero point and code limits have defaults."""
    source, *others = op.inputs
    scale, zero_point, limits = (*map(constant_numbers, others), None, None, None)[:3]
    if source is None or scale is None or zero_point is None or limits is None:
        return None
    try:
        attributes = {name: op.attribute(name) for name in op.attributes}
        encoding = simulated_encoding(attributes, scale, zero_point, limits)
    except UsageError:
        return None
    return source, Quantization(encoding.spec, encoding, ops=(op,), narrow=encoding.spec.narrow)


def simulated_encoding(
    attributes: Mapping[str, Any], scale: np.ndarray, zero_point: np.ndarray, limits: np.ndarray
) -> Encoding:
    """The grid of a ``qc::FakeQuantize``.

    Args:
        attributes: those of the op; left out they have its defaults.
        scale, zero_point: its inputs, in the shapes of :class:`Encoding`.
        limits: its lowest and highest code; any shape of two elements.

    Raises:
        UsageError: the numbers are no grid.
    """
    kind, name = attributes.get("granularity", "tensor"), attributes.get("format", "int")
    block_size = attributes.get("block_size", 1) if kind == "block" else 0
    granularity = _granularity(attributes.get("axis", 0), block_size, int(kind == "channel"))
    if name != "int":
        return Encoding(_spec(parse_format(name), granularity, zero_point), scale, zero_point)
    lowest, highest = map(int, limits)
    format = IntFormat((highest + 1).bit_length() - 1 + (lowest < 0), lowest < 0)
    return Encoding(_spec(format, granularity, zero_point, lowest > format.lowest), scale, zero_point)
