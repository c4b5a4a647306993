"""Where the numbers are that are too many for the text: in a file beside it, or in the model it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from onnx import TensorProto

from ..errors import ModelError
from ..tensor_ref import TensorRef

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

    def put(self, chunks: Iterable[bytes]) -> int:
        """Writes bytes, and tells at which offset."""
        if self._file is None:
            self._file = self._open()
        self.size += self._file.write(bytes(-self.size % _ALIGNMENT))
        start = self.size
        for chunk in chunks:
            self.size += self._file.write(chunk)
        return start


def part_of(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """A part of a file, in chunks."""
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
        if not path.is_file():
            raise ModelError(f"the text needs the file '{path}', which does not exist or is no regular file")
        if path.resolve().parent != self.folder:
            raise ModelError(f"the file '{path}' is a link to another folder")
        self.path = path
        self.size = path.stat().st_size


def byte_size(tensor: TensorProto) -> int:
    """How many bytes the data take; -1 for an unknown type."""
    try:
        return TensorRef(tensor).nbytes
    except (ValueError, KeyError, TypeError):
        return -1
