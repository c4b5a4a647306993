"""Codes of 2 and 4 bits in bytes, the first code in the lowest bits, as ONNX stores them."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, numpy_helper

from ..errors import UsageError


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Packs integers of 2 or 4 bits, signed or not, several into a byte.

    Returns:
        uint8, one dimension; codes in the order of memory, missing ones at the end are zero.

    Raises:
        UsageError: another number of bits, or a code that does not fit.
    """
    _data_type(bits, signed=False)
    flat = np.asarray(codes).ravel()
    if flat.size and not (-(1 << (bits - 1)) <= flat.min() and flat.max() < 1 << bits):
        raise UsageError(f"codes from {flat.min()} to {flat.max()} do not fit {bits} bits")
    of_byte = 8 // bits
    unsigned = flat.astype(np.int8).view(np.uint8) & ((1 << bits) - 1)
    rows = np.pad(unsigned, (0, -flat.size % of_byte)).reshape(-1, of_byte)
    packed = rows[:, 0].copy()
    for place in range(1, of_byte):
        packed |= rows[:, place] << (place * bits)
    return packed


def unpack(packed: np.ndarray, bits: int, signed: bool, shape: tuple[int, ...]) -> np.ndarray:
    """The codes that :func:`pack` packed.

    Returns:
        int8 if ``signed``, else uint8, of ``shape``.

    Raises:
        UsageError: another number of bits, or not as many bytes as the shape needs.
    """
    data_type = _data_type(bits, signed)
    packed = np.asarray(packed, np.uint8).ravel()
    if packed.size != -(-math.prod(shape) * bits // 8):
        raise UsageError(f"{packed.size} bytes do not hold {bits}-bit codes of the shape {list(shape)}")
    tensor = TensorProto(data_type=data_type, dims=shape, raw_data=packed.tobytes())
    return numpy_helper.to_array(tensor).astype(np.int8 if signed else np.uint8)


def _data_type(bits: int, signed: bool) -> int:
    if bits not in (2, 4):
        raise UsageError(f"only codes of 2 and 4 bits are packed, not of {bits}")
    return int(TensorProto.DataType.Value(f"{'INT' if signed else 'UINT'}{bits}"))
