"""The encoding that a record of a file stands for, to quantize arrays with."""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from ..quant import Encoding, Granularity, PerBlock, PerChannel, QuantSpec
from .record import TensorRecord


def encoding_of(record: TensorRecord, shape: tuple[int, ...] = (), source: str = "encodings") -> Encoding:
    """The encoding of a record, for :func:`qc.ir.quantize` and :func:`qc.ir.dequantize`.

    Two-level blocks become blocks whose scales are the products of both levels.

    Args:
        record: with the axis of its channels or blocks (see :func:`qc.ir.encodings.located`).
        shape: of the tensor; needed for blocks only.
        source: what an error calls the file.

    Raises:
        UsageError: the axis is unknown, or the zero point is shifted by half a code.
    """
    if not np.array_equal(record.zero_point, np.rint(record.zero_point)):
        raise UsageError(f"{source}: '{record.name}' has a shifted zero point, which qc cannot apply yet")
    spec = QuantSpec(record.format, bool(record.symmetric) and record.is_integer)
    if record.granularity == "tensor":
        return Encoding(spec, record.scale, record.zero_point)
    if record.axis is None:
        raise UsageError(
            f"{source}: '{record.name}' has {record.scale.size} scales, but is no weight with a known axis"
        )
    if record.granularity == "channel":
        granularity: Granularity = PerChannel(record.axis)
        return Encoding(spec.with_granularity(granularity), record.scale, record.zero_point)
    assert record.block_size is not None
    granularity = PerBlock(record.axis, record.block_size)
    full = tuple(-(-n // record.block_size) if i == record.axis else n for i, n in enumerate(shape))
    zero_point = record.zero_point if record.zero_point.ndim == len(full) else 0.0
    return Encoding(
        spec.with_granularity(granularity),
        _spread(_scales(record), full, record, source),
        _spread(np.asarray(zero_point), full, record, source),
    )


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
