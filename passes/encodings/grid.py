"""The encoding that a record of a file stands for, to quantize arrays with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec, TwoLevelBlock

from .record import TensorRecord


def encoding_of(record: TensorRecord, shape: tuple[int, ...] = (), source: str = "encodings") -> Encoding:
    """The encoding of a record, for :func:`qc.ir.quantize` and :func:`qc.ir.dequantize`.

    The scales of two-level blocks are the products of both levels. Where the largest integer of a channel is
    not ``2^scale_bits``, as a :class:`~qc.ir.TwoLevelBlock` has it, these are blocks like any others.

    Args:
        record: with the axis of its channels or blocks (see :func:`qc.passes.encodings.located`).
        shape: of the tensor; needed for blocks only.
        source: what an error calls the file.

    Raises:
        UsageError: the axis is unknown, zero points are no whole numbers, but for a shifted grid of int2, or
            numbers are none of an encoding.
    """
    spec = QuantSpec(record.format, bool(record.symmetric) and record.is_integer)
    record, spec = _unshifted(record, spec, source)
    if record.granularity == "tensor":
        return _encoding(spec, record.scale, record.zero_point, record, source)
    if record.axis is None:
        raise UsageError(
            f"{source}: '{record.name}' has {record.scale.size} scales, but is no weight with a known axis"
        )
    if record.granularity == "channel":
        spec = spec.with_granularity(PerChannel(record.axis))
        return _encoding(spec, record.scale, record.zero_point, record, source)
    granularity = _blocks(record)
    full = tuple(-(-n // granularity.size) if i == record.axis else n for i, n in enumerate(shape))
    zero_point = record.zero_point if record.zero_point.ndim == len(full) else record.zero_point.flat[0]
    scale, zero_point = (_spread(numbers, full, record, source) for numbers in (_scales(record), zero_point))
    return _encoding(spec.with_granularity(granularity), scale, zero_point, record, source)


def _encoding(
    spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray, record: TensorRecord, source: str
) -> Encoding:
    try:
        return Encoding(spec, scale, zero_point)
    except UsageError as error:
        raise UsageError(f"{source}: '{record.name}': {error}") from error


def _unshifted(record: TensorRecord, spec: QuantSpec, source: str) -> tuple[TensorRecord, QuantSpec]:
    """The record with whole zero points, and the spec that says whether half a step was taken off."""
    if np.array_equal(record.zero_point, np.rint(record.zero_point)):
        return record, spec
    if not np.all(record.zero_point == -0.5):
        raise UsageError(
            f"{source}: '{record.name}' has a zero point of {record.zero_point.flat[0]:g}; besides whole "
            "numbers only -0.5 of int2 is known"
        )
    try:
        spec = replace(spec, symmetric=True, shifted=True)
    except UsageError as error:
        raise UsageError(f"{source}: '{record.name}': {error}") from error
    return replace(record, zero_point=record.zero_point + spec.shift), spec


def _blocks(record: TensorRecord) -> PerBlock:
    """The blocks of a record: in two levels if these can be told from the products."""
    assert record.axis is not None and record.block_size is not None
    integers, bits = record.block_scales, record.scale_bits
    if integers is not None and bits:
        two_level = TwoLevelBlock(record.axis, record.block_size, bits)
        others = tuple(axis for axis in range(integers.ndim) if axis != two_level.channel_axis)
        if np.all(integers.max(axis=others) == 1 << bits):
            return two_level
    return PerBlock(record.axis, record.block_size)


def _spread(numbers: np.ndarray, shape: tuple[int, ...], record: TensorRecord, source: str) -> np.ndarray:
    try:
        return np.broadcast_to(numbers, shape)
    except ValueError as error:
        raise UsageError(
            f"{source}: '{record.name}' has scales of the shape {list(numbers.shape)}, where its tensor "
            f"needs {list(shape)}"
        ) from error


def _scales(record: TensorRecord) -> np.ndarray:
    """The scales; of two-level blocks the products of both levels."""
    if record.block_scales is None:
        return record.scale
    channel = 1 if record.axis == 0 else 0
    shape = [-1 if axis == channel else 1 for axis in range(record.block_scales.ndim)]
    return np.asarray(record.block_scales * record.scale.reshape(shape))
