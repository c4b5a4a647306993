"""Version 1.0.0: one entry for each tensor, scales in lists; axes are not stored.

Scales of blocks are listed output channel by output channel. Offsets are minus the code of real zero, counted
from the lowest code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.quant.formats import FloatFormat, IntFormat

from .fields import Fields
from .record import Document, Granularity, TensorRecord, integer_record
from .version_0_6 import SECTIONS

_KINDS: dict[str, Granularity] = {
    "PER_TENSOR": "tensor",
    "PER_CHANNEL": "channel",
    "PER_BLOCK": "block",
    "LPBQ": "two-level",
}


def read(fields: Fields) -> Iterator[TensorRecord]:
    """The records of a file."""
    for section, is_parameter in SECTIONS.items():
        for entry in fields.objects(section) if section in fields else ():
            name = entry.text("name")
            entry.place = f"{fields.place}, {section}, '{name}'"
            record = _read_entry(name, entry)
            entry.finish()
            yield replace(record, is_parameter=is_parameter)


def _read_entry(name: str, entry: Fields) -> TensorRecord:
    granularity = _KINDS[entry.text("enc_type", list(_KINDS))]
    if entry.text("dtype", ("INT", "FLOAT")) == "FLOAT":
        entry.integer("bw", 16, 16)
        return TensorRecord(name, FloatFormat("float16"))
    bits, symmetric = entry.integer("bw", 2, 32), entry.boolean("is_sym")
    scale, offset = _numbers(entry, granularity)
    if "zero_point_shift" in entry:
        shift = entry.array("zero_point_shift")
        if shift.size != offset.size:
            raise entry.error("zero_point_shift", f"has {shift.size} numbers for {offset.size} scales")
        offset = offset + shift.reshape(offset.shape)
    extra: dict[str, Any] = {"granularity": granularity}
    if granularity in ("block", "two-level"):
        extra["block_size"] = entry.integer("block_size", 1, 2**31)
    if granularity == "two-level":
        compressed, integers = (
            entry.integer("compressed_bw", 2, bits),
            entry.block_scales("per_block_int_scale"),
        )
        if integers.size % scale.size:
            said = f"has {integers.size} numbers, which are no blocks of {scale.size} channels"
            raise entry.error("per_block_int_scale", said)
        extra |= {"block_scales": integers, "scale_bits": bits - compressed}
        bits, offset = compressed, offset / 2 ** (bits - compressed)
    return integer_record(name, entry, bits, symmetric, scale, offset, **extra)


def _numbers(entry: Fields, granularity: Granularity) -> tuple[np.ndarray, np.ndarray]:
    scale, offset = np.atleast_1d(entry.scales("scale")), np.atleast_1d(entry.array("offset"))
    if scale.ndim != 1 or scale.shape != offset.shape:
        raise entry.error("offset", f"has {offset.size} numbers for {scale.size} scales")
    if granularity != "tensor":
        return scale, offset
    if scale.size != 1:
        raise entry.error("scale", f"has {scale.size} numbers, but enc_type is PER_TENSOR")
    return scale[0], offset[0]


def write(document: Document) -> dict[str, Any]:
    """The content of a file.

    Raises:
        UsageError: a tensor has a grid that this version cannot say.
    """
    sections: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
    for record in document.records:
        sections["param_encodings" if record.is_parameter else "activation_encodings"].append(_entry(record))
    return {**sections, "quantizer_args": dict(document.arguments)}


def _entry(record: TensorRecord) -> dict[str, Any]:
    if not record.is_integer:
        if record.has_scale:
            raise UsageError(f"'{record.name}': version 1.0.0 has no 8-bit floats; use 2.0.0")
        return {"name": record.name, "enc_type": "PER_TENSOR", "dtype": "FLOAT", "bw": record.format.bits}
    assert isinstance(record.format, IntFormat)
    kind = next(kind for kind, granularity in _KINDS.items() if granularity == record.granularity)
    entry: dict[str, Any] = {
        "name": record.name,
        "enc_type": kind,
        "dtype": "INT",
        "bw": record.format.bits,
        "is_sym": bool(record.symmetric),
    }
    if record.granularity in ("block", "two-level"):
        entry["block_size"] = _block_size(record)
    offset = record.offset
    if record.granularity == "two-level":
        assert record.block_scales is not None and record.scale_bits is not None
        entry |= {
            "bw": record.format.bits + record.scale_bits,
            "compressed_bw": record.format.bits,
            "per_block_int_scale": [int(number) for number in _listed(record, record.block_scales)],
        }
        offset = np.broadcast_to(offset * 2**record.scale_bits, record.scale.shape)
    shift = offset - np.floor(offset)
    if np.any(shift):
        entry["zero_point_shift"] = [float(number) for number in _listed(record, shift)]
    entry["scale"] = [float(number) for number in _listed(record, record.scale)]
    number = int if record.granularity == "two-level" else float  # as AIMET writes them
    entry["offset"] = [number(value) for value in _listed(record, np.floor(offset))]
    return entry


def _listed(record: TensorRecord, numbers: np.ndarray) -> np.ndarray:
    """The numbers output channel by output channel."""
    if record.granularity == "block" and numbers.ndim == 1 and record.as_stored:
        raise UsageError(
            f"'{record.name}' has scales of blocks whose order in version 1.0.0 depends on the shape of the "
            "tensor; give the model"
        )
    return record.by_channel(numbers)


def _block_size(record: TensorRecord) -> int:
    if record.block_size is None:
        raise UsageError(f"'{record.name}': version 1.0.0 needs the size of a block; give the model")
    return record.block_size
