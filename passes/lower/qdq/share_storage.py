"""Stores equal codes and zero points once."""

from __future__ import annotations

from collections.abc import Hashable

from onnx import TensorProto

from qc.ir.facts.code_grids import grids_of_codes
from qc.ir.facts.equal_constants import share_constants
from qc.ir.facts.qdq import is_qdq
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Use, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter


def share_storage(model: Model, rewriter: Rewriter) -> None:
    """Stores equal codes of one grid, and equal zero points but for int8 weights, once in each graph."""
    scopes, alike = scopes_of(model.graph), dict[Hashable, list[Value]]()
    for graph in model.graph.walk():
        for value in filter(_is_storage, graph.values()):
            alike.setdefault((graph, grids_of_codes(scopes, value)), []).append(value)
    for values in alike.values():
        share_constants(rewriter, values)


def _is_storage(value: Value) -> bool:
    """Whether a value is a constant that may stand for several.

    A single scale is none: those that are one constant say what is tied. Nor is the zero point of int8
    weights: with ``session.x64quantprecision`` ONNX Runtime makes a uint8 one of it for each weight, all by
    one name.
    """
    if value.const is None or (value.is_float and value.const.size == 1):
        return False
    is_int8 = value.const.data_type == TensorProto.INT8
    return not (is_int8 and any(map(_is_zero_point_of_weight, value.uses)))


def _is_zero_point_of_weight(use: Use) -> bool:
    if use.port != 2 or not is_qdq(use.op, "DequantizeLinear"):
        return False
    codes = use.op.inputs[0]
    return codes is not None and codes.original.const is not None
