"""Keeps ONNX Runtime from ops on codes, and from limits, that it has not for codes of few bits and of float8.

It takes a Relu for the work of the QuantizeLinear that alone reads it if the zero point is 0, as with uint8,
whatever the type of the codes is: in front of int4 and float8, which have numbers below 0, it drops one that
is needed. A Clip there is an error when it loads the model. What only moves numbers in between it moves
behind both.

It makes an op on codes of whatever reads those of 2 bits, and of data of 4 bits of a pool or reduction that
chooses from it, and of a Conv whose weights are of another type. It has no kernel for these ops, and does not
load the model. For products of float data by weights of 2 bits it has one, which computes other numbers.

A LeakyRelu of slope 1 keeps it from all of this. It is put in for every target, since models that are made
for another runtime are run by ONNX Runtime too, to be compared.
"""

from __future__ import annotations

from onnx import TensorProto

from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .neighbours import put_identity_behind, stored_codes

_WIDE = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16)
_FOUR_BITS = (TensorProto.INT4, TensorProto.UINT4)
_TWO_BITS = (TensorProto.INT2, TensorProto.UINT2)


def keep_narrow(model: Model, rewriter: Rewriter) -> None:
    """Puts the LeakyRelu in front of what would not take the codes, and behind what would be dropped."""
    for op in list(model.ops()):
        for value in dict.fromkeys(op.inputs):
            if value is not None and _refuses_codes(op, value):
                put_identity_behind(rewriter, value, op)
        for result in op.outputs:
            if result is not None and _moves_to_narrow(op, result):
                put_identity_behind(rewriter, result)


def _refuses_codes(op: Op, value: Value) -> bool:
    """Whether an op on the codes of a tensor would be made that does not take them."""
    codes = _codes_type(value)
    if codes in _TWO_BITS:
        return True
    if codes not in _FOUR_BITS or stored_codes(value) is not None:
        return False
    weight = op.inputs[1] if op.is_type("Conv") else None
    is_mixed = weight is not None and _codes_type(weight) != codes
    return is_mixed or op.is_type("MaxPool", "ReduceMax", "ReduceMin")


def _moves_to_narrow(op: Op, result: Value) -> bool:
    """Whether an op limits or moves what a QuantizeLinear to such codes reads."""
    if not (op.is_type("Clip", "Relu") or is_grid_preserving(op)):
        return False
    made = [use.op.outputs[0] for use in result.uses if is_qdq(use.op, "QuantizeLinear")]
    return any(codes is not None and codes.type.elem_type not in _WIDE for codes in made)


def _codes_type(value: Value) -> int | None:
    """The type of the codes that a tensor is dequantized from; None if it is not."""
    producer = value.producer
    if producer is None or not is_qdq(producer, "DequantizeLinear"):
        return None
    codes = producer.inputs[0]
    return codes.type.elem_type if codes is not None else None
