"""The numbers in the raw data of a small tensor, as text and back, for all types that have numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .scanner import Scanner
from .storage import byte_size
from .words import double, hexadecimal, single

_T = TensorProto
# Types whose numbers lie side by side in whole bytes as numpy has them; the others take longer to unpack.
_PLAIN = {
    _T.DataType.Value(name): np.dtype(code)
    for name, code in {
        "FLOAT": "<f4",
        "DOUBLE": "<f8",
        "FLOAT16": "<f2",
        "BOOL": "?",
        **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
        **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    }.items()
}
_BOOL = re.compile(r"true|false")


def raw_text(tensor: TensorProto) -> str:
    """The raw data: numbers, or ``x"..."`` for what cannot be written as numbers without a loss."""
    raw, kind = tensor.raw_data, _kind(tensor.data_type)
    if not kind or len(raw) != byte_size(tensor):
        return hexadecimal(raw)
    numbers = _unpacked(tensor.data_type, raw, tensor.dims)
    numbers = [math.nan if number != number else number for number in numbers]  # of many, the usual one
    items = _items(tensor.data_type, kind, numbers)
    surely_exact = tensor.data_type in _PLAIN and kind != "b" and "nan" not in items
    if not surely_exact and _packed(tensor.data_type, kind, numbers) != raw:
        return hexadecimal(raw)
    return f"[{', '.join(items)}]" if tensor.dims else items[0]


def _kind(data_type: int) -> str:
    """``b``, ``i``, ``u`` or ``f`` for bools, integers and floats; empty for other types."""
    name = _T.DataType.Name(data_type) if data_type in _T.DataType.values() else ""
    for start, kind in (
        ("BOOL", "b"),
        ("INT", "i"),
        ("UINT", "u"),
        ("FLOAT", "f"),
        ("BFLOAT", "f"),
        ("DOUBLE", "f"),
    ):
        if name.startswith(start):
            return kind
    return ""


def _items(data_type: int, kind: str, numbers: Sequence[float]) -> list[str]:
    if kind == "b":
        return ["true" if number else "false" for number in numbers]
    if kind == "f":
        return list(map(double if data_type == _T.DOUBLE else single, numbers))
    return list(map(str, numbers))


def _unpacked(data_type: int, raw: bytes, dims: Sequence[int]) -> list[float]:
    if data_type in _PLAIN:
        return np.frombuffer(raw, _PLAIN[data_type]).tolist()
    array = numpy_helper.to_array(TensorProto(data_type=data_type, dims=dims, raw_data=raw))
    return array.astype(np.float64 if _kind(data_type) == "f" else np.int64).ravel().tolist()


def _packed(data_type: int, kind: str, numbers: Sequence[float]) -> bytes:
    with np.errstate(over="ignore"):
        if data_type in _PLAIN:
            return np.asarray(numbers, _PLAIN[data_type]).tobytes()
        array = np.asarray(numbers, np.float64 if kind == "f" else np.int64)
        return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(data_type))).raw_data


def read_raw(scanner: Scanner, tensor: TensorProto) -> bytes:
    """The raw data of a tensor of the type and shape of ``tensor``, as :func:`raw_text` wrote them."""
    raw = scanner.accept_hexadecimal()
    if raw is not None:
        return raw
    start, data_type, kind = scanner.position, tensor.data_type, _kind(tensor.data_type)
    if not kind:
        raise scanner.error('x"...", since this type has no numbers')
    read = _reader(scanner, kind)
    numbers = scanner.items(read, "]") if scanner.accept("[") else [read()]
    size = np.prod(tensor.dims, dtype=object) if tensor.dims else 1
    if len(numbers) != size:
        raise scanner.problem(f"there are {len(numbers)} numbers where the shape needs {size}", start)
    raw = _packed(data_type, kind, numbers)
    if kind in "iu" and data_type not in _PLAIN and _unpacked(data_type, raw, tensor.dims) != numbers:
        raise scanner.problem("a number is too large for its type", start)
    return raw


def _reader(scanner: Scanner, kind: str) -> Callable[[], float]:
    if kind == "b":
        return lambda: scanner.take(_BOOL, "true or false") == "true"
    if kind == "u":
        return lambda: scanner.integer("a number", 0, (1 << 64) - 1)
    return scanner.integer if kind == "i" else scanner.real
