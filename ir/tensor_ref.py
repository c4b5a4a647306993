"""Constant data that is read only when asked for: kept as its original proto, memory-mapped when external."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .errors import ModelError

_SMALL = 1024
_TYPED_FIELDS = [f"{kind}_data" for kind in ("float", "int32", "int64", "double", "uint64", "string")]
_PIECE = 1 << 24  # bytes of external data that are looked at together; whole elements of any size


class TensorRef:
    """A constant of the graph: shape and type are known at once, the data is read on demand.

    Args:
        proto: the tensor as it stands in the model; its data may live in an external file.
        base_dir: the folder that external locations are relative to; None when there is none.
        data_type: the ONNX type to convert the numbers to when they are read; default: that of ``proto``.

    Raises:
        ModelError: on reading, when the data is shorter or longer than the shape says, or an external
            file is missing, too short, or outside ``base_dir``.
    """

    __slots__ = ("base_dir", "data_type", "proto")

    def __init__(
        self, proto: TensorProto, base_dir: Path | None = None, data_type: int | None = None
    ) -> None:
        self.proto = proto
        self.base_dir = base_dir
        self.data_type = int(data_type or proto.data_type)

    @classmethod
    def from_array(cls, array: np.ndarray, data_type: int | None = None) -> TensorRef:
        """Wraps an array; ``data_type`` packs integers into a sub-byte ONNX type (int4, uint2 and so on)."""
        if data_type is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # in 16-bit floats large numbers are infinite
                array = array.astype(helper.tensor_dtype_to_np_dtype(data_type))
        return cls(numpy_helper.from_array(np.asarray(array, order="C")))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.proto.dims)

    @property
    def stored_type(self) -> int:
        """The ONNX type of the data as it is stored."""
        return int(self.proto.data_type)

    @property
    def is_converted(self) -> bool:
        """Whether the data is stored in another type than it is read in."""
        return self.data_type != self.stored_type

    @property
    def size(self) -> int:
        return math.prod(self.proto.dims)

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements take as they are stored, in ONNX's packed layout."""
        bits = storage_bits(self.stored_type)
        return (self.size * bits + 7) // 8

    @property
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""
        return self.proto.data_location == TensorProto.EXTERNAL

    @property
    def is_small(self) -> bool:
        """Whether reading the data costs next to nothing, so that structure passes may look at it."""
        return self.size <= _SMALL

    @property
    def has_data(self) -> bool:
        """Whether the elements stand in the proto, or there are none."""
        proto = self.proto
        return not self.size or proto.HasField("raw_data") or any(getattr(proto, f) for f in _TYPED_FIELDS)

    def check(self) -> None:
        """Raises ModelError if the data does not fit type and shape, as far as its size tells."""
        if self.is_external:
            self.external_range()
        else:
            self._check_inline_size()

    def numpy(self) -> np.ndarray:
        """The data; a read-only view of the file for external data of whole-byte types."""
        stored = self._stored()
        if not self.is_converted:
            return stored
        return np.asarray(stored, helper.tensor_dtype_to_np_dtype(self.data_type))

    def _stored(self) -> np.ndarray:
        if self.is_external:
            return self._map_external()
        self._check_inline_size()
        try:
            return numpy_helper.to_array(self.proto)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"constant '{self.proto.name}' cannot be read: {error}") from error

    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest number: NaN if one is in it, zeros if it is empty.

        External data is read piece by piece, so a large weight never is in memory as a whole.
        """
        pieces = [(float(np.min(piece)), float(np.max(piece))) for piece in self._pieces() if piece.size]
        if not pieces:
            return 0.0, 0.0
        low, high = np.asarray(pieces).T
        return float(np.min(low)), float(np.max(high))

    def digest(self, first: int | None = None) -> bytes:
        """A hash of element type, shape and the stored bits of all elements, or of the ``first`` ones.

        External data is read piece by piece, as for :meth:`extremes`.
        """
        found = hashlib.blake2b(repr((self.data_type, self.shape)).encode(), digest_size=16)
        for piece in self._pieces(first):
            if piece.dtype == object:
                found.update(repr(piece.tolist()).encode())
            else:
                found.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        return found.digest()

    def _pieces(self, first: int | None = None) -> Iterator[np.ndarray]:
        """The elements as they are stored, or the ``first`` ones, in one or several arrays."""
        if not self.is_external or storage_bits(self.stored_type) < 8:
            yield self._stored() if first is None else self._stored().reshape(-1)[:first]
            return
        path, offset, left = self.external_range()
        dtype = helper.tensor_dtype_to_np_dtype(self.stored_type)
        if first is not None:
            left = min(left, first * dtype.itemsize)
        with path.open("rb") as file:
            file.seek(offset)
            while left:
                piece = file.read(min(left, _PIECE))
                left -= len(piece)
                yield np.frombuffer(piece, dtype)

    def _check_inline_size(self) -> None:
        proto = self.proto
        if any(n < 0 for n in proto.dims):
            raise ModelError(f"constant '{proto.name}' has a negative dimension: {list(proto.dims)}")
        if proto.HasField("raw_data") and proto.data_type != TensorProto.STRING:
            if len(proto.raw_data) != self.nbytes:
                raise ModelError(
                    f"constant '{proto.name}' has {len(proto.raw_data)} bytes where its shape "
                    f"{list(proto.dims)} needs {self.nbytes}; the model is damaged"
                )
            return
        if not self.has_data:
            raise ModelError(
                f"constant '{proto.name}' has shape {list(proto.dims)} but no data; the model is damaged"
            )

    def external_range(self) -> tuple[Path, int, int]:
        """File, offset and length in bytes of external data, checked against the folder and the file."""
        if min(self.shape, default=0) < 0:
            raise ModelError(f"constant '{self.proto.name[:100]}' has a negative length, {self.shape}")
        fields = {entry.key: entry.value for entry in self.proto.external_data}
        name = self.proto.name
        if self.base_dir is None:
            raise ModelError(f"constant '{name}' has external data; load the model from its file")
        path = self._external_path(fields.get("location", ""), self.base_dir)
        try:
            offset, length = int(fields.get("offset", 0)), int(fields.get("length", self.nbytes))
        except ValueError as error:
            raise ModelError(
                f"constant '{name}' has an unreadable offset or length of its external data"
            ) from error
        if length != self.nbytes or offset < 0 or offset + length > path.stat().st_size:
            raise ModelError(
                f"constant '{name}' needs {self.nbytes} bytes at offset {offset} of '{path.name}', "
                f"which has {path.stat().st_size}"
            )
        return path, offset, length

    def _external_path(self, location: str, folder: Path) -> Path:
        name = self.proto.name
        try:
            base = folder.resolve()
            path = (base / location).resolve()
            exists = path.is_relative_to(base) and path.is_file()
        except (OSError, RuntimeError, TypeError, ValueError) as error:  # too long, a circle, no text
            raise ModelError(
                f"constant '{name}' has external data at '{location[:100]}', which is no usable path: {error}"
            ) from error
        if not path.is_relative_to(base):
            raise ModelError(
                f"constant '{name}' points outside the model's folder: '{location}'; only files beside the "
                "model are read: move it there, and let the model name it without a folder"
            )
        if not exists:
            raise ModelError(
                f"constant '{name}' needs the file '{path}', which does not exist: it is a part of the model "
                "and belongs beside it"
            )
        return path

    def _map_external(self) -> np.ndarray:
        path, offset, length = self.external_range()
        if length == 0:
            return np.zeros(self.shape, helper.tensor_dtype_to_np_dtype(self.stored_type))
        data = np.memmap(path, np.uint8, mode="r", offset=offset, shape=(length,))
        if storage_bits(self.stored_type) >= 8:
            return data.view(helper.tensor_dtype_to_np_dtype(self.stored_type)).reshape(self.shape)
        packed = TensorProto(data_type=self.stored_type, dims=self.shape, raw_data=data.tobytes())
        return numpy_helper.to_array(packed)

    def read_as(self, data_type: int) -> TensorRef:
        """The same data, converted to another type when it is read."""
        return TensorRef(self.proto, self.base_dir, data_type)

    def stored_as(self, data_type: int) -> TensorRef:
        """The same numbers stored in another type, if that holds every one of them exactly; else itself."""
        numbers = self.numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            stored = numbers.astype(helper.tensor_dtype_to_np_dtype(data_type))
        if not np.array_equal(stored.astype(numbers.dtype), numbers, equal_nan=True):
            return self
        return TensorRef(TensorRef.from_array(stored).proto, None, self.data_type)

    def renamed(self, name: str) -> TensorProto:
        """The proto under ``name`` in the type it is read in: the original object when it already fits."""
        if self.is_converted:
            return TensorRef.from_array(self.numpy()).renamed(name)
        if self.proto.name == name:
            return self.proto
        proto = TensorProto()
        proto.CopyFrom(self.proto)
        proto.name = name
        return proto


@cache
def storage_bits(data_type: int) -> int:
    """Bits per element of an ONNX data type in its packed layout."""
    name = TensorProto.DataType.Name(data_type)
    if name.endswith(("INT4", "FLOAT4E2M1")):
        return 4
    if name.endswith("INT2"):
        return 2
    return int(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type)).itemsize) * 8
