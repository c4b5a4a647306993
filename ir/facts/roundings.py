"""Recognizes ops that only round a tensor: quantize and dequantize pairs, stored codes, simulations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from onnx import TensorProto

from ..errors import UsageError
from ..graph import Graph, Op, Value
from ..quant.formats import Format, IntFormat, parse_format
from ..quant.spec import Encoding, Granularity, PerBlock, PerChannel, PerTensor, Quantizer, QuantSpec
from .constants import constant_data
from .two_level import two_level_scale

_DOMAINS = ("", "com.microsoft")


@dataclass(frozen=True, eq=False)
class Mark:
    """A rounding of a tensor.

    Attributes:
        spec: the format.
        encoding: the numbers; None for a quantizer that is not calibrated.
        quantizer: the quantizer of the IR; None if the rounding is made of ops.
        stored: whether the tensor is a constant that holds codes instead of real numbers.
        ops: the ops that the rounding is made of.
    """

    spec: QuantSpec
    encoding: Encoding | None
    quantizer: Quantizer | None = None
    stored: bool = False
    ops: tuple[Op, ...] = ()

    @cached_property
    def grid(self) -> Hashable:
        """Equal for marks that round to the same numbers; without numbers, for those of the same spec."""
        if self.encoding is None:
            return self.spec
        scale, zero_point = self.encoding.scale, self.encoding.zero_point
        granularity = str(self.spec.granularity) if scale.size > 1 else ""  # one number fits all of them
        return str(self.spec.format), granularity, scale.tobytes(), zero_point.tobytes()


class Roundings:
    """Recognizes what rounds, and remembers what it found."""

    def __init__(self) -> None:
        self._found: dict[Op, tuple[Value, Mark] | None] = {}
        self._encodings: dict[tuple[object, ...], Encoding | None] = {}

    def of(self, graph: Graph, op: Op) -> tuple[Value, Mark] | None:
        """The tensor that ``op`` gives back rounded, and the rounding; None if it does something else."""
        if op not in self._found:
            self._found[op] = self._recognized(graph, op)
        return self._found[op]

    def _recognized(self, graph: Graph, op: Op) -> tuple[Value, Mark] | None:
        if op.domain == "qc" and op.op_type == "FakeQuantize":
            return _simulated(graph, op)
        if not _is(op, "DequantizeLinear"):
            return None
        codes = graph.op_inputs(op)[0]
        encoding = self._encoding(graph, op)
        if codes is None or encoding is None:
            return None
        if constant_data(codes) is not None:
            return codes, Mark(encoding.spec, encoding, stored=True, ops=(op,))
        maker = graph.producer(codes)
        if maker is None or not _is(maker, "QuantizeLinear"):
            return None
        source, before = graph.op_inputs(maker)[0], self._encoding(graph, maker)
        if source is None or before is None or not (before is encoding or before.equals(encoding)):
            return None
        return source, Mark(encoding.spec, encoding, ops=(maker, op))

    def _encoding(self, graph: Graph, op: Op) -> Encoding | None:
        """The numbers of a QuantizeLinear or DequantizeLinear; None if they are not constant or not valid."""
        x, scale, zero_point = (*graph.op_inputs(op), None, None)[:3]
        axis, block_size = op.attribute("axis", 1), op.attribute("block_size", 0)
        if axis < 0 and x is not None and x.type.shape is not None:
            axis += len(x.type.shape)
        codes = _code_type(op, x, zero_point)
        key = (_identity(scale), _identity(zero_point), axis, block_size, codes)
        if key not in self._encodings:
            self._encodings[key] = _encoding(scale, zero_point, axis, block_size, codes)
        return self._encodings[key]


def _is(op: Op, op_type: str) -> bool:
    return op.op_type == op_type and op.domain in _DOMAINS


def _identity(value: Value | None) -> Value | None:
    return value.original if value is not None else None


def _code_type(op: Op, x: Value | None, zero_point: Value | None) -> int:
    """The element type of the codes."""
    if zero_point is not None and zero_point.type.elem_type:
        return zero_point.type.elem_type
    if op.op_type == "DequantizeLinear":
        return x.type.elem_type if x is not None else 0
    return int(op.attribute("output_dtype", 0)) or TensorProto.UINT8


def _encoding(
    scale: Value | None, zero_point: Value | None, axis: int, block_size: int, codes: int
) -> Encoding | None:
    scales = constant_data(scale) if scale is not None else None
    levels = two_level_scale(scale) if block_size else None
    zeros = constant_data(zero_point) if zero_point is not None else None
    if (scales is None and levels is None) or (zeros is None and zero_point is not None):
        return None
    numbers = scales.numpy() if scales is not None else levels.scale  # type: ignore[union-attr]
    offsets = np.zeros(numbers.shape, np.int32) if zeros is None else zeros.numpy()
    granularity: Granularity = PerTensor()
    if levels is not None:
        granularity = levels.granularity(axis, block_size)
    elif block_size:
        granularity = PerBlock(axis, block_size)
    elif numbers.size > 1:
        granularity = PerChannel(axis)
    else:
        numbers, offsets = numbers.reshape(()), offsets.reshape(())
    try:
        format = parse_format(TensorProto.DataType.Name(codes).lower())
        return Encoding(_spec(format, granularity, offsets), numbers, offsets)
    except (UsageError, ValueError):  # a type, scale or shape that qc does not know as a rounding
        return None


def _spec(
    format: Format, granularity: Granularity, zero_point: np.ndarray, narrow: bool = False
) -> QuantSpec:
    middle = 0
    if isinstance(format, IntFormat) and not format.signed:
        middle = 1 << (format.bits - 1)
    symmetric = bool((np.asarray(zero_point, np.int32) == middle).all())
    return QuantSpec(format, symmetric, narrow, granularity)


def _simulated(graph: Graph, op: Op) -> tuple[Value, Mark] | None:
    """A qc::FakeQuantize whose scale, zero point and code limits have defaults."""
    source, *others = graph.op_inputs(op)
    found = [constant_data(value) for value in others if value is not None]
    if source is None or len(found) != 3 or None in found:
        return None
    scale, zero_point, limits = (ref.numpy() for ref in found if ref is not None)
    try:
        format, narrow = _simulated_format(op.attribute("format", ""), limits)
        spec = _spec(format, _simulated_granularity(op), zero_point, narrow)
        encoding = Encoding(spec, scale, zero_point)
    except UsageError:
        return None
    return source, Mark(spec, encoding, ops=(op,))


def _simulated_format(name: str, limits: np.ndarray) -> tuple[Format, bool]:
    if name != "int":
        return parse_format(name), False
    lowest, highest = (int(limit) for limit in limits)
    bits = highest.bit_length()
    signed = lowest < 0
    return IntFormat(bits + signed, signed), lowest != (-1 << bits if signed else 0)


def _simulated_granularity(op: Op) -> Granularity:
    kind, axis = op.attribute("granularity", "tensor"), op.attribute("axis", 0)
    if kind == "channel":
        return PerChannel(axis)
    return PerBlock(axis, op.attribute("block_size", 1)) if kind == "block" else PerTensor()
