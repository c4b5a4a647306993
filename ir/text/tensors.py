"""Tensors in the IR text: few numbers stand in the text, many of them elsewhere.

    [1.0, 2.0]     raw data                       {1.0, 2.0}     the field for that type, such as float_data
    3              raw data of a scalar           @64            raw data in the file beside
    external @64   external data                  message @64+12 so many bytes: the whole tensor, serialized
    (nothing)      data that are neither in the text nor beside it

What else a tensor has is its residue.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import TensorProto

from ..tensor_ref import TensorRef
from ..value_type import ValueType
from .numbers import numbers_text, read_numbers
from .residue import message_bytes, read_residue, residue
from .scanner import Scanner
from .storage import DataFile, DataWriter, byte_size, part_of
from .value_types import tensor_type, type_text
from .words import quoted_bytes, single

_INLINE = 16  # elements
_BYTES_EACH = 64  # of a tensor in the text, which may be damaged or hold strings
_DATA = re.compile(r"[\[{@\d-]|(?:message|external|true|false|inf|nan)\b")

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
_WRITE: dict[str, Callable[[Any], str]] = {"float_data": single, "string_data": quoted_bytes}
_SHOWN = frozenset({"dims", "name"})
_EXTERNAL = _SHOWN | {"external_data", "data_location"}


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
            return _inline(tensor)
        if self._writer is None:
            self.left_out[key] = tensor
            return ""
        if external:
            chunks = part_of(*TensorRef(tensor, self._base_dir).external_range())
            place = f"external @{self._writer.put(chunks)}"
            return place + residue(tensor, _EXTERNAL, {"data_type": tensor.data_type})
        if _data_fields(tensor) == {"raw_data"} and len(tensor.raw_data) == byte_size(tensor):
            place = f"@{self._writer.put((tensor.raw_data,))}"
            return place + residue(tensor, _SHOWN | {"raw_data"}, {"data_type": tensor.data_type})
        message = message_bytes(tensor)
        return f"message @{self._writer.put((message,))}+{len(message)}"


def _data_fields(tensor: TensorProto) -> set[str]:
    return {field.name for field, _ in tensor.ListFields() if field.name in _DATA_FIELDS}


def _inline(tensor: TensorProto) -> str:
    shown, text = "raw_data", ""
    if _data_fields(tensor) == {"raw_data"}:
        text = numbers_text(tensor)
    if not text:
        shown = _FIELD.get(tensor.data_type, _OTHER_FIELD)
        try:
            items = [_WRITE.get(shown, repr)(item) for item in getattr(tensor, shown)]
        except UnicodeDecodeError:
            items = ["nan"]
        if "nan" in items:  # which stands for many
            shown, items = "name", []
        text = f"{{{', '.join(items)}}}"
    return text + residue(tensor, _SHOWN | {shown}, {"data_type": tensor.data_type})


class TensorReader:
    """Reads what a :class:`TensorPrinter` wrote.

    Args:
        tensors: what the text leaves out, by the name that the text has for it.
        file: the file beside the text; None if there is none.
    """

    def __init__(self, scanner: Scanner, tensors: Mapping[str, TensorProto], file: DataFile | None) -> None:
        self._scanner = scanner
        self._tensors = tensors
        self._file = file

    def read(self, type: ValueType, key: str) -> TensorProto:
        """A tensor of a type.

        Args:
            key: how the text names it, by which it is found if its data are not in the text.
        """
        scanner, start = self._scanner, self._scanner.position
        dims = [size for size in type.shape or () if isinstance(size, int)]
        if type.shape is None or len(dims) != len(type.shape):
            raise scanner.problem("a constant has a type with a known shape, such as float[2,3]")
        if not self.is_next():
            if key not in self._tensors:
                raise scanner.problem(f"the data of '{key}' are not in the text; give the model with them")
            return self._fitting(self._tensors[key], type, key, start)
        tensor = TensorProto(dims=dims, data_type=type.elem_type)
        try:
            shown = self._read_data(tensor)
        except (ValueError, OverflowError, TypeError, DecodeError) as error:
            raise scanner.problem(f"the data of '{key}' do not fit its type", start) from error
        read_residue(scanner, self._fitting(tensor, type, key, start), shown)
        return tensor

    def _fitting(self, tensor: TensorProto, type: ValueType, key: str, start: int) -> TensorProto:
        if tensor_type(tensor) != type:
            other = type_text(tensor_type(tensor))
            raise self._scanner.problem(f"the data given for '{key}' are of type {other}", start)
        return tensor

    def is_next(self) -> bool:
        """Whether data come next, of whichever type."""
        return self._scanner.looks_at(_DATA)

    def _read_data(self, tensor: TensorProto) -> frozenset[str]:
        """Fills a tensor, and tells which fields its residue cannot have."""
        scanner = self._scanner
        if scanner.sees("@"):
            tensor.raw_data = self._stored(byte_size(tensor))
        elif scanner.accept("{"):
            self._read_field(tensor)
        elif scanner.accept_word("external"):
            self._read_external(tensor)
            return _EXTERNAL
        elif scanner.accept_word("message"):
            tensor.ParseFromString(self._stored(None))
        else:
            tensor.raw_data = read_numbers(scanner, tensor)
        return _SHOWN

    def _read_field(self, tensor: TensorProto) -> None:
        scanner, items = self._scanner, self._scanner.items
        field = _FIELD.get(tensor.data_type, _OTHER_FIELD)
        if field == "string_data":
            tensor.string_data.extend(items(lambda: scanner.string("a string").encode(), "}"))
        elif field in ("float_data", "double_data"):
            getattr(tensor, field).extend(items(scanner.real, "}"))
        else:
            highest = (1 << 64) - 1 if field == "uint64_data" else (1 << 63) - 1
            getattr(tensor, field).extend(items(lambda: scanner.integer("a number", highest=highest), "}"))

    def _read_external(self, tensor: TensorProto) -> None:
        file, offset, length = self._place(byte_size(tensor))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file.path.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))

    def _stored(self, size: int | None) -> bytes:
        file, offset, length = self._place(size)
        return b"".join(part_of(file.path, offset, length))

    def _place(self, size: int | None) -> tuple[DataFile, int, int]:
        """File, offset and length; the length stands there if ``size`` does not tell it."""
        scanner, start, file = self._scanner, self._scanner.position, self._file
        if file is None:
            raise scanner.problem("the file of data is missing, in which the numbers of this constant are")
        scanner.expect("@")
        offset = scanner.integer("an offset", 0)
        if size is None:
            scanner.expect("+")
            size = scanner.integer("a length", 0)
        if size < 0 or offset + size > file.size:
            raise scanner.problem(f"the file of data has {file.size} bytes and ends before these", start)
        return file, offset, size
