"""Operators on codes, such as QLinearConv, as those on float that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qc.ir.facts.op_traits import axes_by_input
from qc.ir.graph import Op, Value

from .limits import limited
from .twins import FloatTwins, Grid, NoTwin, known_numbers


@dataclass(frozen=True)
class OnCodes:
    """An operator on codes. Scale and zero point follow each port of codes.

    Attributes:
        op_type: the operator on float.
        operands: the ports of codes.
        result: the port of the scale of the result.
        bias: the port of the bias, whose scale is that of both operands.
        first: the port of an input that is no code and comes before the operands.
    """

    op_type: str
    operands: tuple[int, ...]
    result: int
    bias: int | None = None
    first: int | None = None


_BINARY = {name: OnCodes(name, (0, 3), 6) for name in ("Add", "Mul")}
_UNARY = {
    name: OnCodes(name, (0,), 3)
    for name in ("AveragePool", "GlobalAveragePool", "LeakyRelu", "ReduceMean", "Sigmoid", "Softmax")
}
OPERATORS: Mapping[str, OnCodes] = {
    **{f"QLinear{name}": facts for name, facts in (_BINARY | _UNARY).items()},
    "QLinearConv": OnCodes("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": OnCodes("MatMul", (0, 3), 6),
    "QLinearWhere": OnCodes("Where", (1, 4), 7, first=0),
    "QGemm": OnCodes("Gemm", (0, 3), 7, bias=6),
}
_SETTINGS = ("channels_last", "opset")  # attributes that only operators on codes have
_ALONG_ONE_AXIS = 13  # the first opset whose Softmax is along its axis alone, and not all from there on


def to_float(twins: FloatTwins, op: Op) -> None:
    """Computes in float beside an operator on codes, and lets those who read its codes as float read that.

    Raises:
        NoTwin: it is in a form for which there is no float operator.
    """
    if op.attribute("channels_last", 0):
        raise NoTwin
    facts = OPERATORS.get(op.op_type) or _concat(op)
    inputs = (*op.inputs, *[None] * 9)
    operands = [_operand(twins, op, port) for port in facts.operands]
    given: list[Value | None] = [inputs[facts.first]] if facts.first is not None else []
    given += operands
    if facts.bias is not None and inputs[facts.bias] is not None:
        given.append(_bias(twins, op, facts))
    attributes = _attributes(op)
    if "axes" in attributes and axes_by_input(facts.op_type, op.graph.model.opset):
        axes = np.array(attributes.pop("axes"), np.int64)
        given.append(twins.rewriter.add_constant(op.graph, axes, "axes"))
    codes = op.outputs[0]
    if codes is None:
        raise NoTwin
    scale, zero_point = inputs[facts.result : facts.result + 2]
    if scale is None:  # the result of a QGemm may be float
        result = twins.rewriter.add_value(op.graph, codes.name, codes.type)
    else:
        result = twins.add_value(codes, Grid(scale, zero_point))
    twins.rewriter.add_op(op.graph, facts.op_type, given, [result], attributes, name=op.name or None)
    if scale is None:
        twins.substitute(codes, result)
    else:
        end = limited(twins.rewriter, result, scale, zero_point, codes.type.elem_type)
        twins.put(codes, end, Grid(scale, zero_point))


def _attributes(op: Op) -> dict[str, Any]:
    """The attributes of the operator on float, by which the opset of the model means the same."""
    found = {name: op.attribute(name) for name in op.attributes if name not in _SETTINGS}
    return found | ({"axis": _softmax_axis(op)} if op.op_type == "QLinearSoftmax" else {})


def _softmax_axis(op: Op) -> int:
    """The axis of a Softmax; raises NoTwin if the opset of the model would mean other axes by it."""
    axis, codes = op.attribute("axis", -1), op.inputs[0]
    shape = codes.type.shape if codes is not None else None
    is_last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    own, of_model = (opset >= _ALONG_ONE_AXIS for opset in (op.attribute("opset", 1), op.graph.model.opset))
    if own != of_model and not is_last:
        raise NoTwin
    return int(axis)


def _concat(op: Op) -> OnCodes:
    return OnCodes("Concat", tuple(range(2, op.num_inputs, 3)), 0)


def _operand(twins: FloatTwins, op: Op, port: int) -> Value:
    codes, scale, zero_point = op.inputs[port : port + 3]
    if scale is None:
        raise NoTwin
    axis = 0 if op.op_type == "QLinearConv" or op.attribute("transB", 0) else -1
    return twins.of(codes, Grid(scale, zero_point, axis))


def _bias(twins: FloatTwins, op: Op, facts: OnCodes) -> Value:
    """The bias of a convolution or product as a float constant."""
    assert facts.bias is not None
    inputs = op.inputs
    codes = inputs[facts.bias]
    assert codes is not None
    scales = [known_numbers(inputs[port + 1]).ravel() for port in facts.operands]
    scale = np.prod(np.broadcast_arrays(*scales), axis=0) * op.attribute("alpha", 1.0)
    return twins.constant(codes, (known_numbers(codes) * scale).astype(np.float32))
