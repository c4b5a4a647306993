"""Ops of ONNX Runtime's own domain that its optimizer makes of several, as those that they were."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Writer, result_shape
from .gemm import Gemm

_CLIPS_BY_INPUT = 11  # the first opset whose Clip takes its limits as inputs
_ERF = 9  # the first opset with an Erf
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
    data, weight, bias, summand = [*op.inputs, None, None][:4]
    names = [name for name in op.attributes if not name.startswith("activation")]

    def write(build: Builder) -> list[Value | None]:
        shape, attributes = result_shape(op), {name: op.attribute(name) for name in names}
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
    """A MatMul of transposed data, and its product with ``alpha``.

    Where batches are transposed, they lie between the two axes of a matrix.
    """
    orders = [_order(op, value, side) for value, side in zip(op.inputs, "AB", strict=True)]
    if None in orders:
        return None
    alpha = np.array(op.attribute("alpha", 1.0), np.float32)

    def write(build: Builder) -> list[Value | None]:
        factors = [_transposed(build, *order) for order in orders if order is not None]
        made = build.op("MatMul", *factors, shape=result_shape(op))
        if alpha != 1:
            made = build.op("Mul", made, build.constant(alpha, "alpha"), shape=result_shape(op))
        return [made]

    return write


def quick_gelu(op: Op) -> Writer:
    """``x * sigmoid(alpha * x)``."""
    (data,) = op.inputs
    assert data is not None
    alpha, shape = np.array(op.attribute("alpha", 1.702), np.float32), data.type.shape

    def write(build: Builder) -> list[Value | None]:
        scaled = data
        if alpha != 1:
            scaled = build.op("Mul", data, build.constant(alpha, "alpha"), shape=shape)
        return [build.op("Mul", data, build.op("Sigmoid", scaled, shape=shape), shape=shape)]

    return write


def bias_gelu(op: Op) -> Writer | None:
    """``x * (1 + erf(x / sqrt(2))) / 2`` of a sum, or of the data if that is all."""
    return _of_biased(op, _gelu) if op.graph.model.opset >= _ERF else None


def fast_gelu(op: Op) -> Writer | None:
    """The same by ``tanh``."""
    return _of_biased(op, _gelu_by_tanh)


def _of_biased(op: Op, function: Callable[[Builder, Value], Value]) -> Writer | None:
    data, bias = [*op.inputs, None][:2]
    if data is None:
        return None

    def write(build: Builder) -> list[Value | None]:
        total = data if bias is None else build.op("Add", data, bias, shape=data.type.shape)
        return [function(build, total)]

    return write


def _gelu(build: Builder, x: Value) -> Value:
    shape = x.type.shape
    root, one, half = (build.constant(np.array(number, np.float32), "gelu") for number in (sqrt(2), 1, 0.5))
    erf = build.op("Erf", build.op("Div", x, root, shape=shape), shape=shape)
    doubled = build.op("Mul", x, build.op("Add", erf, one, shape=shape), shape=shape)
    return build.op("Mul", doubled, half, shape=shape)


def _gelu_by_tanh(build: Builder, x: Value) -> Value:
    shape = x.type.shape
    numbers = (0.044715, sqrt(2 / pi), 1, 0.5)
    share, root, one, half = (build.constant(np.array(number, np.float32), "gelu") for number in numbers)
    cube = build.op("Mul", build.op("Mul", x, x, shape=shape), x, shape=shape)
    inner = build.op("Add", x, build.op("Mul", cube, share, shape=shape), shape=shape)
    tanh = build.op("Tanh", build.op("Mul", inner, root, shape=shape), shape=shape)
    factor = build.op("Add", tanh, one, shape=shape)
    return build.op("Mul", build.op("Mul", x, half, shape=shape), factor, shape=shape)


def _activated(build: Builder, op: Op, activation: str, numbers: list[float], data: Value) -> Value:
    named: dict[str, Any] = dict(zip(_PARAMETERS[activation], numbers, strict=False))
    if activation == "Clip" and op.graph.model.opset >= _CLIPS_BY_INPUT:
        limits = [build.constant(np.array(number, np.float32), name) for name, number in named.items()]
        return build.op("Clip", data, *limits, shape=result_shape(op))
    return build.op(activation, data, shape=result_shape(op), **named)


def _order(op: Op, value: Value | None, side: str) -> tuple[Value, list[int]] | None:
    """A factor, and the order in which its axes are those of matrices; empty for the one that they have."""
    of_batch, of_matrix = (op.attribute(f"{name}{side}", 0) for name in ("transBatch", "trans"))
    if value is None or not (of_batch or of_matrix):
        return None if value is None else (value, [])
    if value.type.shape is None:
        return None
    if len(value.type.shape) < 2:  # ONNX Runtime leaves a vector as it is
        return value, []
    *batch, row, column = range(len(value.type.shape))
    if of_batch and batch:
        row, *batch = [*batch, row]
    return value, [*batch, *((column, row) if of_matrix else (row, column))]


def _transposed(build: Builder, value: Value, order: list[int]) -> Value:
    """A tensor with its axes in an order; a constant is stored so."""
    if order in ([], sorted(order)):
        return value
    constant, shape = fixed_constant(value), value.type.shape or ()
    if constant is not None:
        return build.constant(constant.numpy().transpose(order), "transposed")
    return build.op("Transpose", value, shape=tuple(shape[axis] for axis in order), perm=order)
