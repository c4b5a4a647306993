"""Versions 2.0.0 and 2.1.0: one list of entries in the terms of ONNX's QuantizeLinear.

Version 2.1.0 adds scales that are quantized themselves; of these, those of two-level blocks are understood.
Neither has 16-bit floats, and neither says which tensors are parameters or meant to be symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.quant.formats import Format, IntFormat, parse_format

from .fields import Fields
from .record import Document, TensorRecord, check_middle, check_zero_point

# What AIMET writes for 32 bits, of which it knows no sign; read as the same grid in signed codes.
_UNSIGNED = "uint32"


def read(fields: Fields) -> Iterator[TensorRecord]:
    """The records of a file."""
    for entry in fields.objects("encodings"):
        name = entry.text("name")
        entry.place = f"{fields.place}, '{name}'"
        record = _read_entry(name, entry)
        entry.finish()
        yield record


def _read_entry(name: str, entry: Fields) -> TensorRecord:
    format = _format(entry)
    axis = entry.integer("axis", -64, 63) if "axis" in entry else None
    block_size = entry.integer("block_size", 1, 2**31) if "block_size" in entry else None
    levels = _two_levels(entry, axis)
    if levels is not None:
        return _two_level(name, entry, format, axis, block_size, *levels)
    scale = entry.scales("y_scale")
    if axis is not None and scale.ndim > 1:
        axis = _counted_from_first(entry, axis, scale.ndim)
    zero_point = entry.array("y_zero_point") if "y_zero_point" in entry else np.zeros(scale.shape)
    if zero_point.shape != scale.shape:
        raise entry.error("y_zero_point", f"has the shape {zero_point.shape}, the scale {scale.shape}")
    if entry.text("output_dtype") == _UNSIGNED:
        zero_point = zero_point + IntFormat(32, signed=True).lowest
    check_zero_point(entry, "y_zero_point", format, zero_point)
    if format.bits != 2 and not np.array_equal(zero_point, np.rint(zero_point)):
        raise entry.error("y_zero_point", f"holds a number that {format} does not have")
    if scale.ndim and axis is None:
        raise entry.error("axis", "is missing, but there are several scales")
    if block_size is not None and not scale.ndim:
        raise entry.error("block_size", "is given, but there is only one scale")
    granularity = "block" if block_size is not None else "channel" if scale.ndim else "tensor"
    if granularity == "channel" and scale.ndim > 1:
        raise entry.error("block_size", "is missing, but the scales are nested")
    return TensorRecord(
        name,
        format,
        symmetric=_is_symmetric(format, zero_point),
        granularity=granularity,  # type: ignore[arg-type]
        scale=scale,
        zero_point=zero_point,
        axis=axis,
        block_size=block_size,
    )


def _two_levels(entry: Fields, axis: int | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The integers of blocks and the scales of channels, in either spelling; None where there are none."""
    if "per_channel_float_scale" in entry:
        return entry.block_scales("per_block_int_scale"), entry.scales("per_channel_float_scale")
    if not isinstance(entry.required("y_scale"), dict):
        return None
    nested = Fields(entry.get("y_scale"), f"{entry.place}, y_scale")
    integers, scale = nested.block_scales("x"), nested.scales("x_scale")
    _check_channel_axis(nested, axis if scale.ndim else None, integers.ndim)
    nested.finish()
    return integers, scale


def _two_level(
    name: str,
    entry: Fields,
    format: Format,
    axis: int | None,
    block_size: int | None,
    integers: np.ndarray,
    scale: np.ndarray,
) -> TensorRecord:
    if axis is None or block_size is None:
        raise entry.error("axis" if axis is None else "block_size", "is missing, but there are blocks")
    zero_point = _middle(entry, format, (integers.shape, scale.shape))
    axis = _counted_from_first(entry, axis, integers.ndim)
    channels = [n for i, n in enumerate(integers.shape) if i == (1 if axis == 0 else 0)]
    flat = scale.ravel() if scale.ndim else np.full(channels, scale)
    if len(channels) != 1 or flat.shape != tuple(channels):
        raise entry.error("block_size", f"gives blocks of shape {integers.shape} for {flat.size} channels")
    return TensorRecord(
        name,
        format,
        symmetric=True,
        granularity="two-level",
        scale=flat,
        zero_point=np.full(flat.shape, zero_point),
        axis=axis,
        block_size=block_size,
        block_scales=integers,
        scale_bits=format.bits,
    )


def _middle(entry: Fields, format: Format, shapes: tuple[tuple[int, ...], ...]) -> float:
    """The zero point of two-level blocks: one number, or as many equal ones as a shape has."""
    zero_point = entry.array("y_zero_point") if "y_zero_point" in entry else np.zeros(())
    middle = format.middle if isinstance(format, IntFormat) else 0
    if "y_zero_point" not in entry and middle:
        raise entry.error("y_zero_point", f"is missing; two-level blocks of {format} have {middle}")
    check_middle(entry, "y_zero_point", format, zero_point)
    if zero_point.shape not in ((), *shapes):
        raise entry.error("y_zero_point", f"has the shape {zero_point.shape}, the blocks {shapes[0]}")
    return middle


def _counted_from_first(entry: Fields, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise entry.error("axis", f"is {axis}, but the scales have {rank} dimensions")
    return axis % rank


def _check_channel_axis(meta: Fields, axis: int | None, rank: int) -> None:
    """Raises UsageError unless the scales of the channels of two-level blocks lie where they are looked for.

    Args:
        axis: that of the blocks; None if it is not known, or there is one scale for all channels.
        rank: of the tensor.
    """
    given = meta.integer("axis", -64, 63) if "axis" in meta else None
    if axis is None or given is None:
        return
    channel = 1 if axis in (0, -rank) else 0
    if given not in (channel, channel - rank):
        raise meta.error("axis", f"must be {channel}, that of the channels, as blocks lie along axis {axis}")


def _format(entry: Fields) -> Format:
    text = entry.text("output_dtype")
    if text in ("int32", _UNSIGNED):
        return IntFormat(32, signed=True)
    try:
        return parse_format(text)
    except UsageError as error:
        raise entry.error("output_dtype", f"is not known: {error}") from error


def _is_symmetric(format: Format, zero_point: np.ndarray) -> bool:
    if not isinstance(format, IntFormat):
        return True
    shifted = format.bits == 2 and np.all(zero_point == format.middle - 0.5)
    return bool(shifted or np.all(zero_point == format.middle))


def write(document: Document) -> dict[str, Any]:
    """The content of a file.

    Raises:
        UsageError: a tensor has a grid that this version cannot say.
    """
    return {"encodings": [_entry(record, document.version) for record in document.records]}


def _entry(record: TensorRecord, version: str) -> dict[str, Any]:
    if not record.has_scale:
        raise UsageError(
            f"'{record.name}': version {version} has no 16-bit floats; use 1.0.0, or leave the tensor out"
        )
    entry: dict[str, Any] = {"name": record.name, "output_dtype": str(record.format)}
    if record.granularity != "tensor":
        if record.axis is None:
            raise UsageError(
                f"'{record.name}': version {version} needs the axis of its channels or blocks, which the "
                "source does not say; give the model"
            )
        entry["axis"] = record.axis
    if record.granularity in ("block", "two-level"):
        entry["block_size"] = record.block_size
    if record.granularity == "two-level":
        entry |= _two_level_fields(record, version)
    else:
        entry["y_scale"] = record.scale.tolist()
    if np.any(record.zero_point):
        whole = record.zero_point if record.block_scales is None else _of_blocks(record)
        entry["y_zero_point"] = _plain(whole)
    return entry


def _two_level_fields(record: TensorRecord, version: str) -> dict[str, Any]:
    assert record.block_scales is not None and record.axis is not None
    integers = record.block_scales
    channel_axis = 1 if record.axis == 0 else 0
    if version == "2.1.0":
        scale = {"x": integers.tolist(), "x_scale": record.scale.tolist(), "axis": channel_axis}
        return {"y_scale": scale}
    if record.scale_bits != record.format.bits:
        raise UsageError(
            f"'{record.name}': version 2.0.0 has two-level blocks of {record.format.bits} bits only with as "
            f"many bits for the scale of a block, not {record.scale_bits}; use 2.1.0 or 1.0.0"
        )
    shape = [-1 if axis == channel_axis else 1 for axis in range(integers.ndim)]
    return {
        "per_block_int_scale": integers.tolist(),
        "per_channel_float_scale": record.scale.reshape(shape).tolist(),
    }


def _of_blocks(record: TensorRecord) -> np.ndarray:
    """The zero points of two-level blocks, which are all the same: one for each block."""
    assert record.block_scales is not None
    return np.full(record.block_scales.shape, record.zero_point.flat[0])


def _plain(numbers: np.ndarray) -> Any:
    """Integers as integers."""
    whole = np.array_equal(numbers, np.rint(numbers))
    return numbers.astype(np.int64).tolist() if whole else numbers.tolist()
