"""Ops of ONNX Runtime's own domain that its optimizer makes of several, as those that they were."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Shape, Writer
from .gemm import Gemm

_CLIPS_BY_INPUT = 11  # the first opset whose Clip takes its limits as inputs
# The names of the numbers that an activation is made of.
_PARAMETERS = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}


def conv(op: Op) -> Writer | None:
    """A Conv, the sum with the fourth input if there is one, and the activation."""
    activation = str(op.attribute("activation", ""))
    if activation not in _PARAMETERS:
        return None
    data, weight, bias, summand = [*op.graph.op_inputs(op), None, None][:4]
    names = [name for name in op.attributes if not name.startswith("activation")]

    def write(build: Builder) -> list[Value | None]:
        shape, attributes = _shape(op), {name: op.attribute(name) for name in names}
        made = build.op("Conv", data, weight, *([bias] if bias else []), shape=shape, **attributes)
        if summand is not None:
            made = build.op("Add", made, summand, shape=shape)
        return [_activated(build, op, activation, op.attribute("activation_params", ()), made)]

    return write


def gemm(op: Op) -> Writer | None:
    """A Gemm and the activation."""
    activation = str(op.attribute("activation", ""))
    if activation not in _PARAMETERS:
        return None
    names = [f"activation_{name}" for name in ("alpha", "beta")]
    numbers = [op.attribute(name) for name in names if op.attribute(name) is not None]

    def write(build: Builder) -> list[Value | None]:
        return [_activated(build, op, activation, numbers, Gemm(op).write(build))]

    return write


def matmul(op: Op) -> Writer | None:
    """A MatMul of transposed data, and its product with ``alpha``."""
    left, right = op.graph.op_inputs(op)
    if left is None or right is None or op.attribute("transBatchA", 0) or op.attribute("transBatchB", 0):
        return None
    turned = ((left, op.attribute("transA", 0)), (right, op.attribute("transB", 0)))
    if any(turn and value.type.shape is None for value, turn in turned):
        return None
    alpha = np.array(op.attribute("alpha", 1.0), np.float32)

    def write(build: Builder) -> list[Value | None]:
        factors = [_transposed(build, value) if turn else value for value, turn in turned]
        made = build.op("MatMul", *factors, shape=_shape(op))
        if alpha != 1:
            made = build.op("Mul", made, build.constant(alpha, "alpha"), shape=_shape(op))
        return [made]

    return write


def quick_gelu(op: Op) -> Writer:
    """``x * sigmoid(alpha * x)``."""
    (data,) = op.graph.op_inputs(op)
    assert data is not None
    alpha, shape = np.array(op.attribute("alpha", 1.702), np.float32), data.type.shape

    def write(build: Builder) -> list[Value | None]:
        scaled = data
        if alpha != 1:
            scaled = build.op("Mul", data, build.constant(alpha, "alpha"), shape=shape)
        return [build.op("Mul", data, build.op("Sigmoid", scaled, shape=shape), shape=shape)]

    return write


def _activated(build: Builder, op: Op, activation: str, numbers: list[float], data: Value) -> Value:
    named = dict(zip(_PARAMETERS[activation], numbers, strict=False))
    if activation == "Clip" and op.graph.model.opset >= _CLIPS_BY_INPUT:
        limits = [build.constant(np.array(number, np.float32), name) for name, number in named.items()]
        return build.op("Clip", data, *limits, shape=_shape(op))
    return build.op(activation, data, shape=_shape(op), **named)


def _transposed(build: Builder, value: Value) -> Value:
    """A tensor with its last two axes swapped; a constant is stored so."""
    constant = fixed_constant(value)
    if constant is not None:
        return build.constant(constant.numpy().swapaxes(-1, -2), "transposed")
    shape = value.type.shape or ()
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return build.op("Transpose", value, shape=tuple(shape[axis] for axis in axes), perm=axes)


def _shape(op: Op) -> Shape | None:
    result = op.graph.op_outputs(op)[0]
    return result.type.shape if result is not None else None
