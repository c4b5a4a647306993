"""Version 0.6.1: a list of encodings for each tensor, one for each scale; axes and blocks are not stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.quant.formats import FloatFormat, IntFormat

from .fields import Fields
from .record import Document, TensorRecord, integer_record

SECTIONS = {"activation_encodings": False, "param_encodings": True}


def read(fields: Fields) -> Iterator[TensorRecord]:
    """The records of a file."""
    for section, is_parameter in SECTIONS.items():
        tensors = fields.get(section, {})
        if not isinstance(tensors, dict):
            raise fields.error(section, "must be an object with one field for each tensor")
        for name, entries in tensors.items():
            yield read_tensor(name, entries, is_parameter, f"{fields.place}, {section}, '{name}'")


def read_tensor(name: str, entries: object, is_parameter: bool, place: str) -> TensorRecord:
    """The record of one tensor from its list of encodings, or from a single one that stands in no list."""
    listed = entries if isinstance(entries, list) else [entries]
    if not listed:
        raise UsageError(f"{place} holds an empty list")
    parts = [_read_entry(Fields(entry, place)) for entry in listed]
    if len({(type(part.format), part.format.bits, part.symmetric) for part in parts}) > 1:
        raise UsageError(f"{place}: the encodings of one tensor differ in bitwidth, dtype or symmetry")
    first = parts[0]
    if isinstance(first.format, FloatFormat):
        return TensorRecord(name, first.format, is_parameter)
    several = len(parts) > 1
    return TensorRecord(
        name,
        first.format,
        is_parameter,
        first.symmetric,
        "channel" if several else "tensor",
        np.asarray([part.scale for part in parts]) if several else first.scale,
        np.asarray([part.zero_point for part in parts]) if several else first.zero_point,
        as_stored=several,
    )


def _read_entry(entry: Fields) -> TensorRecord:
    if entry.text("dtype", ("int", "float")) == "float":
        bits = entry.integer("bitwidth", 16, 16)
        entry.finish()
        return TensorRecord("", FloatFormat("float16"))
    bits = entry.integer("bitwidth", 2, 32)
    symmetric = entry.boolean("is_symmetric")
    scale, offset = entry.scales("scale", single=True), entry.array("offset", single=True)
    record = integer_record("", entry, bits, symmetric, scale, offset)
    _check_ends(entry, record)
    entry.finish()
    return record


def _check_ends(entry: Fields, record: TensorRecord) -> None:
    """Raises UsageError if minimum or maximum contradict scale and offset by more than a step.

    AIMET's strict symmetric grids say a maximum of one code less, or more, than the grid has.
    """
    for key, value in (("min", record.minimum), ("max", record.maximum)):
        allowed = max(1.5 * float(record.scale), 1e-6 * abs(float(value)))
        said = float(entry.array(key, single=True)) if key in entry else float(value)
        if abs(said - float(value)) > allowed:
            raise entry.error(key, f"is {said:g}, but scale and offset make it {value:g}")


def write(document: Document) -> dict[str, Any]:
    """The content of a file.

    Raises:
        UsageError: a tensor has a grid that this version cannot say.
    """
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for record in document.records:
        section = "param_encodings" if record.is_parameter else "activation_encodings"
        sections[section][record.name] = write_tensor(record)
    return {**sections, "quantizer_args": dict(document.arguments)}


def write_tensor(record: TensorRecord, by_channel: bool = False) -> list[dict[str, Any]]:
    """The list of encodings of one tensor.

    Args:
        by_channel: list those of blocks output channel by output channel, not in the order of the tensor.
    """
    if not record.is_integer:
        if record.has_scale:
            raise _cannot(record, "8-bit floats", "2.0.0")
        return [{"bitwidth": record.format.bits, "dtype": "float"}]
    if record.granularity == "two-level" and by_channel:
        raise UsageError(f"'{record.name}': files by layer have no two-level blocks (LPBQ); write tensors")
    if record.granularity == "two-level":
        raise _cannot(record, "two-level blocks (LPBQ)", "1.0.0 or 2.0.0")
    if record.granularity == "block" and record.scale.ndim == 1 and record.as_stored == by_channel:
        raise UsageError(
            f"'{record.name}' has scales of blocks whose order in version 0.6.1 depends on the shape of the "
            "tensor; give the model"
        )
    assert isinstance(record.format, IntFormat)
    # AIMET has scales of activations in float64: 255 times the float32 nearest to 1 / 255 is to be 1.
    end = np.float32 if not record.is_parameter and _is_float32(record.scale) else np.float64
    numbers = (record.scale, record.offset, record.minimum, record.maximum)
    return [
        {
            "bitwidth": record.format.bits,
            "dtype": "int",
            "is_symmetric": str(bool(record.symmetric)),
            "min": float(end(low)),
            "max": float(end(high)),
            "scale": float(scale),
            "offset": float(offset),
        }
        for scale, offset, low, high in zip(
            *map(record.by_channel if by_channel else np.ravel, numbers), strict=True
        )
    ]


def _is_float32(array: np.ndarray) -> bool:
    return np.array_equal(array, array.astype(np.float32))


def _cannot(record: TensorRecord, what: str, others: str) -> UsageError:
    return UsageError(f"'{record.name}': version 0.6.1 has no {what}; use {others}")
