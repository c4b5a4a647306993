"""Rows looked up as codes and multiplied by their scales, as lookups in the table that codes stand for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType


class _Lookup(NamedTuple):
    """A lookup of rows of int8, without zero points, which a Mul dequantizes.

    Attributes:
        codes: the table.
        scale: of each row, (rows, 1), or of all.
        indices: the rows.
        ops: what computes the factors, each behind those that read it.
    """

    codes: Value
    scale: np.ndarray
    indices: Value
    ops: tuple[Op, ...]


def look_up_numbers(model: Model, rewriter: Rewriter) -> None:
    """Puts a DequantizeLinear in front of each such lookup, in the place of what is behind it."""
    for op in [op for op in model.ops() if op.is_type("Mul")]:
        found, graph = _lookup(op), op.graph
        if found is None:
            continue
        with rewriter.action("lookup of codes to one of numbers", op):
            name, type = found.codes.name, ValueType(TensorProto.FLOAT, found.codes.type.shape)
            scale = rewriter.add_constant(graph, np.squeeze(found.scale), f"{name}_scale")
            table = rewriter.add_value(graph, f"{name}_table", type)
            rewriter.add_op(graph, "DequantizeLinear", [found.codes, scale], [table], {"axis": 0})
            factor = op.inputs[1]
            for port, value in enumerate((table, found.indices)):
                rewriter.set_input(op, port, value)
            rewriter.set_type_of_op(op, "Gather")
            _erase(rewriter, found.ops, factor)


def is_lookup(op: Op) -> bool:
    """Whether an op looks rows up."""
    return op.is_type("Gather") and not op.attribute("axis", 0)


def _lookup(op: Op) -> _Lookup | None:
    product, factor = op.inputs
    cast = _maker(product, "Cast")
    lookup = _maker(cast.inputs[0], "Gather") if cast is not None else None
    if cast is None or lookup is None or not is_lookup(lookup):
        return None
    (codes, indices), of_rows = lookup.inputs, _maker(factor, "Gather")
    scales: Value | None = factor
    ops: tuple[Op, ...] = (cast, lookup)
    if of_rows is not None and is_lookup(of_rows) and of_rows.inputs[1] is indices:
        scales, ops = of_rows.inputs[0], (*ops, of_rows)
    scale = constant_numbers(scales)
    if codes is None or indices is None or scale is None or codes.original.const is None:
        return None
    (rows, *others), kind = codes.original.const.shape or (0,), codes.original.const.data_type
    fits = scale.dtype == np.float32 and scale.shape in ((), (rows, 1))
    is_table = kind == TensorProto.INT8 and len(others) == 1
    return _Lookup(codes, scale, indices, ops) if is_table and fits else None


def _maker(value: Value | None, op_type: str) -> Op | None:
    producer = value.producer if value is not None else None
    return producer if producer is not None and producer.is_type(op_type) else None


def _erase(rewriter: Rewriter, ops: tuple[Op, ...], factor: Value | None) -> None:
    """Takes away what nothing reads any more: ops, the constants that they read, and a factor that is one."""
    unread = [factor]
    for op in ops:
        if not any(value is not None and value.is_read for value in op.outputs):
            unread += op.inputs
            rewriter.erase_op(op)
    for value in unread:
        if value is not None and value in value.graph:
            rewriter.drop_unread(value)
