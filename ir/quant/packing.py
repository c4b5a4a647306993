"""Codes of 2 and 4 bits in bytes, the first code in the lowest bits, as ONNX stores them."""

from __future__ import annotations

import numpy as np

from ..errors import UsageError


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Packs integers of 2 or 4 bits, signed or not, several into a byte.

    Returns:
        uint8, one dimension; codes in the order of memory, missing ones at the end are zero.

    Raises:
        UsageError: another number of bits, or a code that does not fit.
    """
    per_byte = _per_byte(bits)
    flat = np.asarray(codes).ravel().astype(np.int16)
    if flat.size and not (-(1 << (bits - 1)) <= flat.min() and flat.max() < 1 << bits):
        raise UsageError(f"codes from {flat.min()} to {flat.max()} do not fit {bits} bits")
    padded = np.zeros(-(-flat.size // per_byte) * per_byte, np.uint8)
    padded[: flat.size] = flat & ((1 << bits) - 1)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1).astype(np.uint8)


def unpack(packed: np.ndarray, bits: int, signed: bool, shape: tuple[int, ...]) -> np.ndarray:
    """The codes that :func:`pack` packed.

    Returns:
        int8 if ``signed``, else uint8, of ``shape``.

    Raises:
        UsageError: another number of bits, or not as many bytes as the shape needs.
    """
    per_byte = _per_byte(bits)
    packed = np.asarray(packed, np.uint8).ravel()
    size = int(np.prod(shape, dtype=np.int64))
    if packed.size != -(-size // per_byte):
        raise UsageError(f"{packed.size} bytes do not hold {bits}-bit codes of the shape {list(shape)}")
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    codes = ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).ravel()[:size].reshape(shape)
    if not signed:
        return codes
    wide = codes.astype(np.int16)
    return np.where(wide >= 1 << (bits - 1), wide - (1 << bits), wide).astype(np.int8)


def _per_byte(bits: int) -> int:
    if bits not in (2, 4):
        raise UsageError(f"only codes of 2 and 4 bits are packed, not of {bits}")
    return 8 // bits
