"""Rows of a stored table, looked up as codes and dequantized behind the lookup.

A DequantizeLinear in front of a Gather dequantizes the whole table in every run of ONNX Runtime. Behind it,
where rows have scales of their own, none fits: scales are looked up as codes are, and multiply them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape, ValueType

from ...simplify.float_twins.lookups import is_lookup


class _Rows(NamedTuple):
    """Codes of a table, int8 and without zero points, and the scale of each row, or of all."""

    codes: Value
    scale: np.ndarray


def look_up_codes(model: Model, rewriter: Rewriter) -> None:
    """Looks codes up wherever nothing but lookups of rows reads what a DequantizeLinear makes of a table."""
    for graph in list(model.graphs()):
        for op in graph.ops():
            rows = _dequantized(op) if is_qdq(op, "DequantizeLinear") else None
            (table, *_) = op.outputs
            if rows is None or table is None or table.is_output:
                continue
            readers = [use.op for use in table.uses if use.port == 0 and is_lookup(use.op)]
            if readers and len(readers) == len(table.uses):
                scale = rewriter.add_constant(graph, rows.scale, f"{rows.codes.name}_scales")
                for reader in readers:
                    _write(rewriter, reader, rows.codes, scale)
                rewriter.erase_unread(table)


def _float(shape: Shape | None) -> ValueType:
    return ValueType(TensorProto.FLOAT, shape)


def _dequantized(op: Op) -> _Rows | None:
    """The table of a DequantizeLinear, if it is one with a scale for each row, or one for all."""
    codes, scale, zero_point = (*op.inputs, None)[:3]
    scales, zeros = constant_numbers(scale), constant_numbers(zero_point)
    if codes is None or scales is None or (zero_point is not None and (zeros is None or zeros.any())):
        return None
    const, axis = codes.original.const, op.attribute("axis", 1)
    is_table = const is not None and const.data_type == TensorProto.INT8 and len(const.shape) == 2
    by_rows = scales.ndim == 1 and axis in (0, -2) and not op.attribute("block_size", 0)
    if not is_table or scales.dtype != np.float32 or not (by_rows or scales.size == 1):
        return None
    return _Rows(codes, scales.reshape(-1, 1) if scales.size > 1 else scales.reshape(()))


def _write(rewriter: Rewriter, op: Op, codes: Value, scale: Value) -> None:
    """Makes a lookup of numbers the product of looked up codes and scales."""
    graph, (result, *_) = op.graph, op.outputs
    (_, indices, *_) = op.inputs
    assert result is not None and indices is not None
    shape = result.type.shape

    def add(op_type: str, inputs: list[Value], type: ValueType, **attributes: int) -> Value:
        made = rewriter.add_value(graph, f"{inputs[0].name}_{op_type}", type)
        rewriter.add_op(graph, op_type, inputs, [made], attributes)
        return made

    found = add("Gather", [codes, indices], ValueType(TensorProto.INT8, shape), axis=0)
    numbers = add("Cast", [found], _float(shape), to=TensorProto.FLOAT)
    if scale.type.shape:
        of_rows = None if shape is None else (*shape[:-1], 1)
        scale = add("Gather", [scale, indices], _float(of_rows), axis=0)
    for port, value in enumerate((numbers, scale)):
        rewriter.set_input(op, port, value)
    rewriter.set_type_of_op(op, "Mul")
    rewriter.set_attribute(op, "axis", None)
