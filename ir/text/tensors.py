"""Tensors in the IR text: few numbers stand in the text, many of them elsewhere.

    [1.0, 2.0]     raw data                       {1.0, 2.0}   the field for that type, such as float_data
    3              raw data of a scalar           x"00ff"      raw data that cannot be written as numbers
    @64            raw data in the file beside    @64+12       so many bytes
    external @64   external data                  none         no data at all
    message ...    the serialized data fields     (nothing)    data that are neither in the text nor beside it

Behind it stands ``with (...)`` if a tensor carries more, such as a description.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import TensorProto

from ..graph import ValueType
from ..tensor_ref import TensorRef
from .carried import notes_in_place, read_notes_in_place
from .raw_numbers import raw_text, read_raw
from .scanner import Scanner
from .storage import DataFile, DataWriter, Sources, byte_size
from .value_types import type_text
from .words import double, hexadecimal, quoted_bytes, single

_INLINE = 16  # elements
_BYTES_EACH = 64  # of a tensor in the text, which may be damaged or hold strings
_DATA = re.compile(r'[\[{@\d-]|x"|(?:none|message|external|true|false|inf|nan)\b')

_T = TensorProto
_FIELD: dict[int, str] = {
    **dict.fromkeys((_T.FLOAT, _T.COMPLEX64), "float_data"),
    **dict.fromkeys((_T.DOUBLE, _T.COMPLEX128), "double_data"),
    **dict.fromkeys((_T.UINT32, _T.UINT64), "uint64_data"),
    _T.INT64: "int64_data",
    _T.STRING: "string_data",
}
_OTHER_FIELD = "int32_data"
_DATA_FIELDS = frozenset({"raw_data", _OTHER_FIELD, *_FIELD.values()})
_SAID = _DATA_FIELDS | {"dims", "data_type", "name"}
_PLACE = frozenset({"external_data", "data_location"})


def tensor_type(tensor: TensorProto) -> ValueType:
    """Element type and shape."""
    return ValueType(tensor.data_type, tuple(tensor.dims))


class TensorPrinter:
    """Writes the data of tensors.

    Args:
        base_dir: the folder that external data are relative to.
        writer: takes the data that are too many for the text; without it they are left out.

    Attributes:
        left_out: the tensors whose data are left out, by the name that the text has for them.
    """

    def __init__(self, base_dir: Path | None, writer: DataWriter | None) -> None:
        self.left_out: dict[str, TensorProto] = {}
        self._base_dir = base_dir
        self._writer = writer

    def text(self, tensor: TensorProto, key: str, limit: int = _INLINE) -> str:
        """The data of a tensor, without type and name; empty if they are left out.

        Args:
            key: how the text names it.
            limit: how many numbers may stand in the text.
        """
        external = tensor.data_location == TensorProto.EXTERNAL
        if not external and math.prod(tensor.dims) <= limit and tensor.ByteSize() <= limit * _BYTES_EACH:
            return _inline(tensor) + notes_in_place(tensor, _SAID)
        if self._writer is None:
            self.left_out[key] = tensor
            return ""
        if external:
            place = self._writer.put_range(*TensorRef(tensor, self._base_dir).external_range())
            return f"external @{place}" + notes_in_place(tensor, _SAID | _PLACE)
        return self._stored(tensor, self._writer) + notes_in_place(tensor, _SAID)

    def _stored(self, tensor: TensorProto, writer: DataWriter) -> str:
        if _data_fields(tensor) == ["raw_data"]:
            raw = tensor.raw_data
            length = "" if len(raw) == byte_size(tensor) else f"+{len(raw)}"
            return f"@{writer.put(raw)}{length}"
        message = _data_message(tensor)
        return f"message @{writer.put(message)}+{len(message)}"


def _data_fields(tensor: TensorProto) -> list[str]:
    return [field.name for field, _ in tensor.ListFields() if field.name in _DATA_FIELDS]


def _data_message(tensor: TensorProto) -> bytes:
    """The data fields alone, serialized."""
    found = TensorProto()
    for name in _data_fields(tensor):
        if name == "raw_data":
            found.raw_data = tensor.raw_data
        else:
            getattr(found, name).extend(getattr(tensor, name))
    return found.SerializeToString(deterministic=True)


def _inline(tensor: TensorProto) -> str:
    fields = _data_fields(tensor)
    field = _FIELD.get(tensor.data_type, _OTHER_FIELD)
    if not fields:
        return "none"
    if fields == ["raw_data"]:
        return raw_text(tensor)
    if fields == [field]:
        items = _field_items(field, getattr(tensor, field))
        if "nan" not in items:
            return f"{{{', '.join(items)}}}"
    return f"message {hexadecimal(_data_message(tensor))}"


def _field_items(field: str, items: list[float] | list[int] | list[bytes]) -> list[str]:
    write = {"float_data": single, "double_data": double, "string_data": quoted_bytes}.get(field, str)
    return [write(item) for item in items]  # type: ignore[operator]


# -- reading ----------------------------------------------------------------------------------------


class TensorReader:
    """Reads what a :class:`TensorPrinter` wrote."""

    def __init__(self, scanner: Scanner, sources: Sources) -> None:
        self._scanner = scanner
        self._sources = sources

    def read(self, type: ValueType, key: str) -> TensorProto:
        """A tensor of a type.

        Args:
            key: how the text names it, by which it is found if its data are not in the text.
        """
        scanner = self._scanner
        start = scanner.position
        dims = [size for size in type.shape or () if isinstance(size, int)]
        if type.shape is None or len(dims) != len(type.shape):
            raise scanner.problem("a constant has a type with a known shape, such as float[2,3]")
        if not self.is_next():
            return self._given(type, key)
        tensor = TensorProto(dims=dims)
        try:
            tensor.data_type = type.elem_type
            self._read_data(tensor)
        except (ValueError, OverflowError, TypeError, DecodeError) as error:
            raise scanner.problem(f"the data of '{key}' do not fit its type", start) from error
        external = tensor.data_location == TensorProto.EXTERNAL
        read_notes_in_place(scanner, tensor, _SAID | _PLACE if external else _SAID)
        return tensor

    def is_next(self) -> bool:
        """Whether data come next, of whichever type."""
        return self._scanner.looks_at(_DATA)

    def _given(self, type: ValueType, key: str) -> TensorProto:
        found = self._sources.tensors.get(key)
        if found is None:
            raise self._scanner.problem(
                f"the data of the constant '{key}' are not in the text; give the model that has them"
            )
        if tensor_type(found) != type:
            other = type_text(tensor_type(found))
            raise self._scanner.problem(f"the data given for the constant '{key}' are of type {other}")
        return found

    def _read_data(self, tensor: TensorProto) -> None:
        scanner = self._scanner
        if scanner.sees("@"):
            tensor.raw_data = self._stored(byte_size(tensor))
        elif scanner.accept("{"):
            self._read_field(tensor)
        elif scanner.accept_word("external"):
            self._read_external(tensor)
        elif scanner.accept_word("message"):
            message = scanner.accept_hexadecimal()
            fields = TensorProto.FromString(self._stored(None) if message is None else message)
            tensor.MergeFromString(_data_message(fields))
        elif not scanner.accept_word("none"):
            tensor.raw_data = read_raw(scanner, tensor)

    def _read_field(self, tensor: TensorProto) -> None:
        scanner = self._scanner
        field = _FIELD.get(tensor.data_type, _OTHER_FIELD)
        if field == "string_data":
            tensor.string_data.extend(scanner.items(lambda: scanner.byte_string("a string"), "}"))
        elif field in ("float_data", "double_data"):
            getattr(tensor, field).extend(scanner.items(scanner.real, "}"))
        else:
            highest = (1 << 64) - 1 if field == "uint64_data" else (1 << 63) - 1
            items = scanner.items(lambda: scanner.integer("a number", highest=highest), "}")
            getattr(tensor, field).extend(items)

    def _read_external(self, tensor: TensorProto) -> None:
        file = self._file()
        offset, length = self._place(byte_size(tensor), file.size)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))

    def _stored(self, size: int | None) -> bytes:
        file = self._file()
        return file.read(*self._place(size, file.size))

    def _file(self) -> DataFile:
        if self._sources.file is None:
            raise self._scanner.problem(
                "the file of data is missing, in which the numbers of this constant are"
            )
        return self._sources.file

    def _place(self, size: int | None, limit: int) -> tuple[int, int]:
        """Offset and length; the length may be left out if ``size`` tells it."""
        scanner, start = self._scanner, self._scanner.position
        scanner.expect("@")
        offset = scanner.count("an offset")
        if size is None or scanner.sees("+"):
            scanner.expect("+")
            size = scanner.count("a length")
        if offset + size > limit:
            raise scanner.problem(f"the file of data has {limit} bytes and ends before these", start)
        return offset, size
