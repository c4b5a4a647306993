"""Encodings files: reading any version, writing any, converting between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from qc.ir.base.strict_json import load_json
from qc.ir.errors import UsageError, reason_of
from qc.ir.quant.formats import IntFormat

from . import layered, version_0_6, version_1_0, version_2
from .fields import Fields
from .record import Document, TensorRecord

VERSIONS = ("0.6.1", "1.0.0", "2.0.0", "2.1.0")

_READ: dict[str, Callable[[Fields], Iterable[TensorRecord]]] = {
    "0.6.1": version_0_6.read,
    "1.0.0": version_1_0.read,
    "2.0.0": version_2.read,
    "2.1.0": version_2.read,
}
_WRITE: dict[str, Callable[[Document], dict[str, Any]]] = {
    "0.6.1": version_0_6.write,
    "1.0.0": version_1_0.write,
    "2.0.0": version_2.write,
    "2.1.0": version_2.write,
}
_LAYERED = ("0.6.1", "1.0.0")
_LARGEST_FILE = 1 << 30


def read_encodings(path: str | Path) -> Document:
    """Reads an encodings file of any version.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; names the file, the tensor and the field.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no encodings file '{path}'")
    if path.stat().st_size > _LARGEST_FILE:
        raise UsageError(f"encodings file '{path}' is larger than 1 GB")
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
    except OSError as error:
        raise UsageError(f"encodings file '{path}' cannot be read: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"'{path}' is no encodings file, which is text in JSON") from error
    return parse_encodings(text, f"'{path}'")


def parse_encodings(text: str, source: str = "encodings") -> Document:
    """Reads the text of an encodings file; ``source`` is what errors call it.

    A bare list or object of parameters, such as AIMET's AdaRound writes, counts as a file with nothing else.

    Raises:
        UsageError: something in it is wrong.
    """
    fields = Fields(_whole(load_json(text, source)), source)
    version = fields.text("version", VERSIONS)
    fields.get("producer")
    arguments = fields.get("quantizer_args", {})
    if not isinstance(arguments, dict):
        raise fields.error("quantizer_args", "must be an object")
    fields.get("excluded_layers")
    is_layered = version in _LAYERED and layered.is_layered(fields, version)
    records = list((layered.read if is_layered else _READ[version])(fields))
    fields.finish()
    seen: set[str] = set()
    for record in records:
        if record.name in seen:
            raise UsageError(f"{source}: there are two entries for '{record.name}'")
        seen.add(record.name)
    return Document(version, records, source, arguments, "layers" if is_layered else "tensors")


def _whole(content: Any) -> Any:
    """The content of a file, also around bare parameters; what these are not stays as it is."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        if "output_dtype" in content[0]:
            return {"version": "2.0.0", "encodings": content}
        return {"version": "1.0.0", "param_encodings": content}
    if isinstance(content, dict) and content and all(map(_is_tensor, content.values())):
        return {"version": "0.6.1", "param_encodings": content}
    return content


def _is_tensor(entries: object) -> bool:
    """Whether this looks like the encodings of one tensor in version 0.6.1."""
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and "bitwidth" in first


def dump_encodings(document: Document) -> str:
    """The text of a file in the version of ``document``; deterministic.

    Raises:
        UsageError: a tensor has a grid that the version cannot say.
    """
    content = {
        "version": document.version,
        "producer": {"package": "qc-onnx", "version": version_of("qc-onnx")},
        **(layered.write if document.layout == "layers" else _WRITE[document.version])(document),
    }
    return json.dumps(content, indent=4, sort_keys=True) + "\n"


def converted(document: Document, version: str) -> Document:
    """The same grids in the conventions of another version; by tensors or by layers, as they are.

    To 2.x, activations become unsigned codes, those of 32 bits excepted. From 2.x, records that do not say
    whether they are parameters count as such if they have several scales or 32 bits;
    :func:`qc.passes.encodings.located` tells it better.

    Raises:
        UsageError: the version does not exist.
    """
    if version not in VERSIONS:
        raise UsageError(f"there is no version '{version}' of encodings files; use {', '.join(VERSIONS)}")
    if document.layout == "layers" and version not in _LAYERED:
        raise UsageError(
            f"{document.source} lists layers, version {version} has tensors; give the model, which tells them"
        )
    return replace(document, version=version, records=list(_adapted(document, version)))


def _adapted(document: Document, version: str) -> Iterator[TensorRecord]:
    for record in document.records:
        if version.startswith("2"):
            yield _unsigned(record) if record.is_parameter is False else record
        elif record.is_parameter is None:
            several = record.granularity != "tensor" or record.format.bits == 32
            yield _as_meant(replace(record, is_parameter=several))
        else:
            yield _as_meant(record)


def _unsigned(record: TensorRecord) -> TensorRecord:
    """The same grid in unsigned codes, where there are any of its width."""
    return _in_codes(record, signed=False)


def _as_meant(record: TensorRecord) -> TensorRecord:
    """The same grid in signed codes if it is symmetric, in unsigned ones if it is not."""
    return _in_codes(record, signed=bool(record.symmetric))


def _in_codes(record: TensorRecord, signed: bool) -> TensorRecord:
    """The same grid in codes with a sign, or without one where there are any of its width."""
    if not isinstance(record.format, IntFormat):
        return record
    format = IntFormat.of_width(record.format.bits, signed)
    return replace(record, format=format, zero_point=record.zero_point + format.lowest - record.format.lowest)
