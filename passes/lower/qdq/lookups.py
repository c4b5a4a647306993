"""Rows of a stored table, looked up as codes and dequantized behind the lookup, and back.

A DequantizeLinear in front of a Gather dequantizes the whole table in every run of ONNX Runtime. Behind it,
where rows have scales of their own, none fits: scales are looked up as codes are, and multiply them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value, ValueType
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .stored_weight import constant_array, erase_unread


class _Rows(NamedTuple):
    """Codes of a table, int8 and without zero points, and the scale of each row, or of all."""

    codes: Value
    scale: np.ndarray


def look_up_codes(model: Model, rewriter: Rewriter) -> None:
    """Looks codes up wherever nothing but lookups of rows reads what a DequantizeLinear makes of a table."""
    for graph in list(model.graphs()):
        for op in graph.ops():
            rows = _dequantized(op) if is_qdq(op, "DequantizeLinear") else None
            (table, *_) = graph.op_outputs(op)
            if rows is None or table is None or graph.is_output(table):
                continue
            readers = [use.op for use in graph.uses(table) if use.port == 0 and _is_lookup(use.op)]
            if readers and len(readers) == len(graph.uses(table)):
                scale = rewriter.add_constant(graph, rows.scale, f"{rows.codes.name}_scales")
                for reader in readers:
                    _write(rewriter, reader, rows.codes, scale)
                erase_unread(rewriter, table)


def look_up_numbers(model: Model, rewriter: Rewriter) -> None:
    """Puts the DequantizeLinear ops back in front of the lookups."""
    for op in [op for graph in model.graphs() for op in graph.ops() if op.is_type("Mul")]:
        found = _written(op)
        if found is None:
            continue
        (rows, indices), graph = found, op.graph
        read = [value for value in graph.op_inputs(op) if value is not None]
        with rewriter.action("lookup of codes to one of numbers", op):
            scale = rewriter.add_constant(graph, np.squeeze(rows.scale), f"{rows.codes.name}_scale")
            table = rewriter.add_value(graph, f"{rows.codes.name}_table", _float(rows.codes.type.shape))
            rewriter.add_op(graph, "DequantizeLinear", [rows.codes, scale], [table], {"axis": 0})
            for port, value in enumerate((table, indices)):
                rewriter.set_input(op, port, value)
            rewriter.set_type_of_op(op, "Gather")
            for value in read:
                erase_unread(rewriter, value)


def _is_lookup(op: Op) -> bool:
    return op.is_type("Gather") and not op.attribute("axis", 0)


def _float(shape: tuple[int | str | None, ...] | None) -> ValueType:
    return ValueType(TensorProto.FLOAT, shape)


def _dequantized(op: Op) -> _Rows | None:
    """The table of a DequantizeLinear, if it is one with a scale for each row, or one for all."""
    codes, scale, zero_point = (*op.graph.op_inputs(op), None)[:3]
    scales, zeros = constant_array(scale), constant_array(zero_point)
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
    graph, (result, *_) = op.graph, op.graph.op_outputs(op)
    (_, indices, *_) = graph.op_inputs(op)
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


def _written(op: Op) -> tuple[_Rows, Value] | None:
    """The table that such ops read, and the indices."""
    numbers, factor = op.graph.op_inputs(op)
    cast = _maker(numbers, "Cast")
    lookup = _maker(cast.graph.op_inputs(cast)[0], "Gather") if cast is not None else None
    if lookup is None or not _is_lookup(lookup):
        return None
    codes, indices = lookup.graph.op_inputs(lookup)
    scale, of_rows = constant_array(factor), _maker(factor, "Gather")
    if of_rows is not None and _is_lookup(of_rows) and of_rows.graph.op_inputs(of_rows)[1] is indices:
        scale = constant_array(of_rows.graph.op_inputs(of_rows)[0])
    if codes is None or indices is None or scale is None or codes.original.const is None:
        return None
    (rows, *others), kind = codes.original.const.shape or (0,), codes.original.const.data_type
    fits = scale.dtype == np.float32 and scale.shape in ((), (rows, 1))
    return (_Rows(codes, scale), indices) if kind == TensorProto.INT8 and len(others) == 1 and fits else None


def _maker(value: Value | None, op_type: str) -> Op | None:
    producer = value.graph.producer(value) if value is not None else None
    return producer if producer is not None and producer.is_type(op_type) else None
