"""Where the numbers are that are too many for the text: in a file beside it, or in the model it came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from onnx import TensorProto

from ..errors import ModelError
from ..tensor_ref import storage_bits

_ALIGNMENT = 64
_CHUNK = 1 << 24


class DataWriter:
    """Appends numbers to a file.

    Args:
        open: opens an empty file to write bytes; not called if there are no numbers.

    Attributes:
        size: how many bytes the file has.
    """

    def __init__(self, open: Callable[[], IO[bytes]]) -> None:
        self.size = 0
        self._open = open
        self._file: IO[bytes] | None = None

    def put(self, data: bytes) -> int:
        """Writes bytes, and tells at which offset."""
        return self._put(iter((data,)))

    def put_range(self, path: Path, offset: int, length: int) -> int:
        """Copies a part of another file, and tells to which offset."""
        return self._put(_chunks(path, offset, length))

    def _put(self, chunks: Iterator[bytes]) -> int:
        if self._file is None:
            self._file = self._open()
        self.size += self._file.write(bytes(-self.size % _ALIGNMENT))
        start = self.size
        for chunk in chunks:
            self.size += self._file.write(chunk)
        return start


def _chunks(path: Path, offset: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while length:
            chunk = file.read(min(length, _CHUNK))
            length -= len(chunk)
            yield chunk


class DataFile:
    """The file of numbers beside a text.

    Args:
        path: a file in the folder of the text.

    Raises:
        ModelError: it is missing or no regular file, or is a link to a file of another folder.
    """

    def __init__(self, path: Path) -> None:
        self.folder = path.parent.resolve()
        self.name = path.name
        if not path.is_file():
            raise ModelError(f"the text needs the file '{path}', which does not exist or is no regular file")
        if path.resolve().parent != self.folder:
            raise ModelError(f"the file '{path}' is a link to another folder")
        self._path = path
        self.size = path.stat().st_size

    def read(self, offset: int, length: int) -> bytes:
        """A part of the file, which must be within it."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


class Sources(NamedTuple):
    """Where a parser finds numbers that are not in the text.

    Attributes:
        tensors: by the name that the text has for them, such as ``%w`` or ``%w in then_branch of %y``.
        file: the file beside the text; None if there is none.
    """

    tensors: Mapping[str, TensorProto]
    file: DataFile | None


def byte_size(tensor: TensorProto) -> int | None:
    """How many bytes the data take; None for strings, an unknown type, or a shape with negative sizes."""
    if tensor.data_type == TensorProto.STRING or any(size < 0 for size in tensor.dims):
        return None
    try:
        return (math.prod(tensor.dims) * storage_bits(tensor.data_type) + 7) // 8
    except (ValueError, KeyError, TypeError):
        return None
