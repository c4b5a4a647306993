"""Dequantizes a weight outside of the body whose product reads it, where ONNX Runtime fails otherwise.

ONNX Runtime makes a MatMulNBits of a MatMul or Gemm of a dequantized weight and data that is float, or
has codes of 16 bits, and looks for the codes among the initializers of the body alone: it does not load a
model whose body captures them.
"""

from __future__ import annotations

from qc.ir.facts.op_traits import weight_port
from qc.ir.facts.qdq import is_qdq
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .integer_convolution import BYTES


def dequantize_outside(model: Model, rewriter: Rewriter) -> None:
    """Lets products of float data in bodies capture weights as floats, and not their codes."""
    captures = Captures(rewriter)
    for graph in list(model.graphs()):
        for op in graph.ops():
            codes = _captured_codes(op)
            (result, *_) = op.outputs
            if codes is None or result is None or not any(map(_multiplies_floats, result.uses)):
                continue
            outside = captures.into(graph, _dequantized(rewriter, codes, op))
            rewriter.replace_uses(result, outside, where=_multiplies_floats, outputs=False)
            if not result.is_read:
                rewriter.erase_op(op)


def _captured_codes(op: Op) -> Value | None:
    """The constant of another graph that a DequantizeLinear reads; None if it reads anything else."""
    given = [value for value in op.inputs if value is not None]
    stored = is_qdq(op, "DequantizeLinear") and all(value.original.const is not None for value in given)
    return given[0].original if stored and given[0].captured is not None else None


def _multiplies_floats(use: Use) -> bool:
    """Whether a matrix product reads a weight there, and its data has no codes of 8 bits."""
    op, port = use
    if not op.is_type("MatMul", "Gemm") or port != weight_port(op):
        return False
    data = op.inputs[0]
    producer = data.producer if data is not None else None
    codes = producer.inputs[0] if producer is not None else None
    quantized = producer is not None and is_qdq(producer, "DequantizeLinear")
    return not (quantized and codes is not None and codes.type.elem_type in BYTES)


def _dequantized(rewriter: Rewriter, codes: Value, op: Op) -> Value:
    """What a DequantizeLinear of a body makes of codes, made in the graph that they are in, and once."""
    graph, (result, *_) = codes.graph, op.outputs
    assert result is not None
    for reader, _ in codes.uses:
        (known, *_) = reader.outputs
        if is_qdq(reader, "DequantizeLinear") and known is not None:
            return known
    inputs = [codes]
    for parameter in op.inputs[1:]:
        assert parameter is not None and parameter.original.const is not None
        inputs.append(rewriter.add_constant(graph, parameter.original.const, parameter.name))
    made = rewriter.add_value(graph, result.name, result.type)
    attributes = {name: op.attribute(name) for name in op.attributes}
    rewriter.add_op(graph, op.op_type, inputs, [made], attributes, op.domain)
    return made
