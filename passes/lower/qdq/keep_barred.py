"""Keeps ops in float that the target's rules bar from integers, between tensors that are rounded.

ONNX Runtime makes an integer op of any whose data comes from a DequantizeLinear and whose result goes to a
QuantizeLinear, whatever its attributes are: then it does not load the model, or computes other numbers. An op
that only moves numbers it gives codes if both grids are the same, whether the opset has such an op or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ...framework.target import Target
from .neighbours import comes_to, dequantize_behind, is_constant, put_identity_behind, stored_codes


def keep_barred(model: Model, rewriter: Rewriter, target: Target) -> None:
    """Puts a LeakyRelu of slope 1 behind each such op."""
    for op in list(model.ops()):
        rule = target.rule_for(op.op_type, op.domain)
        if rule.runs not in ("integer", "between", "carry") or rule.barred_by(op) is None:
            continue
        result = op.outputs[0] if op.num_inputs and op.num_outputs else None
        if result is not None and _is_between(op, result, rule.runs == "carry"):
            put_identity_behind(rewriter, result)


def keep_weighed_by_data(model: Model, rewriter: Rewriter, target: Target) -> None:
    """Puts one behind ops that a target runs with codes of their data only by constant weights."""
    for _, result, _ in list(weighed_by_data(model, target)):
        put_identity_behind(rewriter, result)


def weighed_by_data(model: Model, target: Target) -> Iterator[tuple[Op, Value, str]]:
    """The ops between codes of a QDQ graph whose weight is data, which a target wants constant.

    With each comes its result, and the type of the codes of its data.
    """
    for op in model.ops():
        rule = target.rule_for(op.op_type, op.domain)
        if not rule.constant_weight or op.num_inputs < 2:
            continue
        (data, weight), result = op.inputs[:2], op.outputs[0]
        if weight is None or is_constant(weight) or stored_codes(weight) is not None:
            continue
        dequantize = dequantize_behind(data) if data is not None else None
        codes = dequantize.inputs[0] if dequantize is not None else None
        if codes is None or result is None:
            continue
        format = TensorProto.DataType.Name(codes.type.elem_type).lower()
        if rule.bars_data_weight(op, format) and _is_between(op, result, carries=False):
            yield op, result, format


def _is_between(op: Op, result: Value, carries: bool) -> bool:
    """Whether data is dequantized, be it before ops that move it, and the result is rounded likewise."""
    data = op.inputs[0]
    dequantize = dequantize_behind(data) if data is not None else None
    if dequantize is None:
        return False

    def rounds(reader: Op) -> bool:
        return is_qdq(reader, "QuantizeLinear") and not (carries and _grid(reader) != _grid(dequantize))

    return comes_to(result, rounds, is_grid_preserving)


def _grid(op: Op) -> list[object]:
    """The scale and the zero point of a quantize or dequantize op, as far as they are constant."""
    data = [initializer(value) for value in op.inputs[1:]]
    return [np.asarray(one.numpy()).tolist() if one is not None else None for one in data]
