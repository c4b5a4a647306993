"""Ops on weights of a few bits, in blocks, as the float ops that they stand for."""

from __future__ import annotations

import math

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value
from qc.ir.quant.packing import unpack

from .twins import FloatTwins, NoTwin, known_numbers, needed, replace


def matmul_of_bits(twins: FloatTwins, op: Op) -> None:
    """A MatMulNBits: a product with a weight of few bits, in blocks along its rows, and maybe a bias."""
    x, packed, scales, zeros, order, bias = (*op.inputs, None, None, None)[:6]
    rows, columns = op.attribute("N", 0), op.attribute("K", 0)
    bits, size = op.attribute("bits", 4), op.attribute("block_size", 0)
    if order is not None or bits not in (2, 4, 8) or not size:
        raise NoTwin
    blocks = -(-columns // size)
    scale = known_numbers(scales).reshape(rows, blocks)
    codes = _codes(known_numbers(packed), bits, rows, blocks * size)
    zero = _zeros(zeros, bits, rows, blocks)
    weight = _in_blocks(codes.reshape(rows, blocks, size), zero, scale)[:, :columns]
    constant = twins.constant(needed(packed), np.ascontiguousarray(weight.T))
    results, given = op.outputs, [x, constant]
    if bias is not None:
        given = [twins.add_op(op, "MatMul", given), bias]
    replace(twins, op, results, "MatMul" if bias is None else "Add", given, {})


def _codes(packed: np.ndarray, bits: int, rows: int, columns: int) -> np.ndarray:
    packed = packed.astype(np.uint8).reshape(rows, -1)
    if bits == 8:
        return packed[:, :columns]
    held = packed.shape[1] * 8 // bits
    return unpack(packed, bits, False, (rows, held))[:, :columns]


def _zeros(zeros: Value | None, bits: int, rows: int, blocks: int) -> np.ndarray:
    """The zero points of all blocks, of shape (rows, blocks); without any they are in the middle."""
    if zeros is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.float32)
    array = known_numbers(zeros)
    if array.dtype != np.uint8:  # not packed, and of the type of the data
        return array.astype(np.float32).reshape(rows, blocks)
    return _codes(array, bits, rows, blocks).astype(np.float32)


def _in_blocks(codes: np.ndarray, zero: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The numbers of codes of shape (rows, blocks, size), of shape (rows, blocks * size)."""
    array = (codes.astype(np.float32) - zero[..., None]).astype(scale.dtype) * scale[..., None]
    return array.reshape(len(codes), math.prod(codes.shape[1:]))


def _stored(table: Value) -> np.ndarray:
    """The codes of a table, which may be those of a product in another shape, as tied embeddings are."""
    producer = table.original.producer
    if producer is not None and producer.is_type("Reshape"):
        data, shape = producer.inputs[:2]
        return _stored(needed(data)).reshape(known_numbers(shape))
    constant = constant_data(table)
    if constant is None:
        raise NoTwin
    return constant.numpy()


def gather_of_blocks(twins: FloatTwins, op: Op) -> None:
    """A GatherBlockQuantized: rows of a table of few bits, in blocks along its last axis."""
    table, indices, scales, zeros = (*op.inputs, None)[:4]
    codes, scale = _stored(needed(table)), known_numbers(scales)
    size, bits = op.attribute("block_size", 128), op.attribute("bits", 4)
    rank = codes.ndim
    if op.attribute("quantize_axis", 1) not in (rank - 1, -1) or bits not in (2, 4, 8):
        raise NoTwin
    rows, blocks = math.prod(codes.shape[:-1]), scale.shape[-1]
    is_packed = codes.dtype == np.uint8
    flat = _codes(codes, bits, rows, codes.shape[-1] * 8 // bits) if is_packed else codes.reshape(rows, -1)
    zero = np.zeros((rows, blocks), np.float32)
    if zeros is not None and not is_packed:
        zero = known_numbers(zeros).astype(np.float32).reshape(rows, blocks)
    elif is_packed:
        zero = _zeros(zeros, bits, rows, blocks)
    columns = flat.shape[1]
    padded = np.pad(flat.astype(np.int32), ((0, 0), (0, blocks * size - columns)))
    numbers = _in_blocks(padded.reshape(rows, blocks, size), zero, scale.reshape(rows, blocks))[:, :columns]
    constant = twins.constant(
        needed(table), np.ascontiguousarray(numbers.reshape(*codes.shape[:-1], columns))
    )
    attributes = {"axis": op.attribute("gather_axis", 0)}
    replace(twins, op, op.outputs, "Gather", [constant, indices], attributes)
