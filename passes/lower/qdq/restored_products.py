"""MatMulNBits and GatherBlockQuantized as float ops on dequantized matrices, the way that they came from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.packing import unpack
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import ValueType

from .stored_products import DOMAIN, LOOKUP, PRODUCT

_TYPES = {
    (4, True): TensorProto.INT4,
    (4, False): TensorProto.UINT4,
    (8, True): TensorProto.INT8,
    (8, False): TensorProto.UINT8,
}


class _Matrix(NamedTuple):
    """What an op on codes reads.

    Attributes:
        packed: the constant that holds the codes.
        codes: unsigned, (channels, length).
        scale, zero_point: (channels, blocks).
    """

    packed: Value
    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    bits: int
    size: int


def restore_products(model: Model, rewriter: Rewriter) -> None:
    """Puts float ops, with a DequantizeLinear in front, where codes are constants on grids of 4 or 8 bits."""
    found = {
        op: matrix for graph in model.graphs() for op in graph.ops() if (matrix := _matrix(op)) is not None
    }
    tables = {matrix.packed for op, matrix in found.items() if op.op_type == LOOKUP}
    made, captures = dict[Value, Value](), Captures(rewriter)
    for op, matrix in found.items():
        with rewriter.action("codes in a product to dequantized ones", op):
            is_table = matrix.packed in tables
            if matrix.packed not in made:
                made[matrix.packed] = _dequantized(rewriter, matrix, is_table)
            _restore(rewriter, op, captures.into(op.graph, made[matrix.packed]), is_table)


def _matrix(op: Op) -> _Matrix | None:
    if op.domain != DOMAIN or op.op_type not in (PRODUCT, LOOKUP):
        return None
    product, inputs = op.op_type == PRODUCT, (*op.inputs, None, None, None, None)
    packed, scales, zeros = inputs[1 if product else 0], *map(constant_numbers, inputs[2:4])
    bits, size = op.attribute("bits", 4), op.attribute("block_size", 128)
    if packed is not None:
        packed = packed.original if product else _before_reshape(packed.original)
    codes = constant_numbers(packed)
    if packed is None or codes is None or codes.dtype != np.uint8 or scales is None:
        return None
    plain = bits in (4, 8) and scales.dtype == np.float32 and (zeros is None or zeros.dtype == np.uint8)
    given = inputs[3] is None or zeros is not None
    if product:
        bias_of_vector = inputs[5] is None or (inputs[0] is not None and inputs[0].type.rank == 2)
        plain = plain and inputs[4] is None and bias_of_vector
        channels, length = op.attribute("N", 0), op.attribute("K", 0)
    else:
        plain = plain and op.attribute("gather_axis", 0) == 0 and op.attribute("quantize_axis", 1) in (1, -1)
        channels, length = len(codes), codes.size // max(len(codes), 1) * 8 // bits
    if not plain or not given or not channels or not length:
        return None
    blocks = -(-length // size)
    whole = _unpacked(codes, bits, channels, blocks * size if product else length)[:, :length]
    middle = np.full((channels, blocks), 1 << (bits - 1), np.uint8)
    zero_point = _unpacked(zeros, bits, channels, blocks) if zeros is not None else middle
    return _Matrix(packed, whole, scales.reshape(channels, blocks), zero_point, bits, size)


def _before_reshape(table: Value) -> Value:
    """The constant that a table is reshaped from, if it is."""
    producer = table.producer
    source = producer.inputs[0] if producer is not None else None
    return source if producer is not None and producer.is_type("Reshape") and source is not None else table


def _unpacked(array: np.ndarray, bits: int, rows: int, columns: int) -> np.ndarray:
    """Codes of each row, without what fills up its last byte."""
    if bits == 8:
        return array.reshape(rows, -1)[:, :columns]
    held = array.reshape(rows, -1).shape[1] * 8 // bits
    return unpack(array, bits, False, (rows, held))[:, :columns]


def _dequantized(rewriter: Rewriter, matrix: _Matrix, is_table: bool) -> Value:
    """The float matrix: that of a table row by row, that of a product with channels along the last axis."""
    graph, name = matrix.packed.graph, matrix.packed.name.removesuffix("_packed")
    signed = bool((matrix.zero_point == 1 << (matrix.bits - 1)).all())
    offset, kind = (1 << (matrix.bits - 1) if signed else 0), _TYPES[matrix.bits, signed]
    arrays = [
        matrix.codes.astype(np.int16) - offset,
        matrix.scale,
        matrix.zero_point.astype(np.int16) - offset,
    ]
    attributes = {"axis": 1, "block_size": matrix.size}
    if all((array == array[:, :1]).all() for array in arrays[1:]):
        arrays[1:], attributes = [array[:, 0] for array in arrays[1:]], {"axis": 0}
    if not is_table:
        arrays, attributes["axis"] = [array.T for array in arrays], 1 - attributes["axis"]
    codes, scale, zero_point = (np.ascontiguousarray(array) for array in arrays)
    inputs = [
        rewriter.add_constant(graph, TensorRef.from_array(codes, kind), f"{name}_quantized"),
        rewriter.add_constant(graph, scale, f"{name}_scale"),
        rewriter.add_constant(graph, TensorRef.from_array(zero_point, kind), f"{name}_zero_point"),
    ]
    result = rewriter.add_value(graph, name, ValueType(TensorProto.FLOAT, codes.shape))
    rewriter.add_op(graph, "DequantizeLinear", inputs, [result], attributes)
    return result


def _restore(rewriter: Rewriter, op: Op, matrix: Value, is_table: bool) -> None:
    graph, read = op.graph, op.inputs
    bias = (*read, None, None)[5] if op.op_type == PRODUCT and len(read) > 5 else None
    lookup = op.op_type == LOOKUP
    if is_table and not lookup:
        table = matrix
        shape = table.type.shape or ()
        matrix = rewriter.add_value(
            graph, f"{table.name}_transposed", ValueType(TensorProto.FLOAT, shape[::-1])
        )
        rewriter.add_op(graph, "Transpose", [table], [matrix], {"perm": [1, 0]})
    rewriter.set_input(op, 0 if lookup else 1, matrix)
    for port in range(2, op.num_inputs):
        rewriter.set_input(op, port, bias if port == 2 else None)
    rewriter.set_type_of_op(op, "Gather" if lookup else "MatMul" if bias is None else "Gemm")
    for name in list(op.attributes):
        rewriter.set_attribute(op, name, None)
    for value in read[0 if lookup else 1 :]:
        if value is not None and value is not bias and value in graph:
            rewriter.erase_unread(value)
