"""Blocks of convolution networks and of dense layers."""

from __future__ import annotations

from qc.ir.tensor_ref import TensorRef

from ..fragments import either, parameter
from ..pattern import Pattern, attribute, constant, op, optional, value
from ..supergroup import BLOCK, Match, supergroup
from .activations import hard_sigmoid, hard_swish, silu

_ACTIVATION_OPS = ("Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "HardSwish", "Mish", "Gelu")


def _activated(x: Pattern) -> Pattern:
    """``x`` after a BatchNorm and an activation, either of which may be left out."""
    normalized = either(
        op.BatchNormalization(x, ..., training_mode=0),
        x * constant() + constant(),
        x + constant(where=_is_per_channel),
        x,
    )
    return _activation(normalized) | normalized


def _activation(x: Pattern) -> Pattern:
    """One of the activations between layers, of those written out only the short ones."""
    return either(op[_ACTIVATION_OPS](x, ...), silu(x), hard_swish(x))


def _reads_one_channel(weight: TensorRef) -> bool:
    """Filters that read one channel each, of more than one position."""
    return len(weight.shape) > 2 and weight.shape[1] == 1 and any(size > 1 for size in weight.shape[2:])


def _is_pointwise(weight: TensorRef) -> bool:
    """Filters of one position."""
    return len(weight.shape) > 2 and all(size == 1 for size in weight.shape[2:])


def _is_per_channel(data: TensorRef) -> bool:
    """One number for each channel."""
    return sum(size != 1 for size in data.shape) == 1


def refuse_other_groups(match: Match) -> str | None:
    """Whether every input channel has filters of its own."""
    weight = match.constant("depthwise")
    group = match.attributes["group"]
    if weight is None or not isinstance(group, int) or group < 2 or weight.shape[0] % group:
        return f"a Conv with {group} groups"
    return None


@supergroup(BLOCK, check=refuse_other_groups)
def depthwise_separable() -> Pattern:
    """a depthwise convolution and a pointwise one, each with BatchNorm and activation."""
    depthwise = op.Conv(
        value("x"),
        constant("depthwise", where=_reads_one_channel),
        optional(value()),
        group=attribute("group"),
    )
    pointwise = op.Conv(
        _activated(depthwise), constant("pointwise", where=_is_pointwise), optional(value()), group=1
    )
    return _activated(pointwise)


@supergroup(BLOCK)
def squeeze_and_excite() -> Pattern:
    """x times a gate that small layers compute from the mean of every channel."""
    x = value("x")
    pooled = either(op.GlobalAveragePool(x), op.ReduceMean(x, ...))
    squeezed = _dense(_moved(pooled))
    excited = _moved(_dense(_moved(_activation(squeezed))) | squeezed)
    return x * _moved(op.Sigmoid(excited) | hard_sigmoid(excited))


def _moved(x: Pattern) -> Pattern:
    """``x`` as it is or with its dimensions of size one moved."""
    return op["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"](x, ...) | x


def _dense(x: Pattern) -> Pattern:
    """A layer with constant weights, its bias inside or added."""
    layer = op["Conv", "Gemm"](x, value(), optional(value())) | op.MatMul(x, value())
    return layer + parameter() | layer


@supergroup(BLOCK)
def fully_connected() -> Pattern:
    """a constant matrix times the last axis, with a bias: Gemm, MatMul and Add, Reshape around."""
    flat = op["Reshape", "Flatten"](value("x")) | value("x")
    weight, bias = constant("weight") | op.Transpose(constant("weight")), parameter()
    gemm = op.Gemm(flat, weight, optional(value()))
    product = op.MatMul(flat, weight)
    shaped = op.Reshape(product)
    return either(
        op.Reshape(gemm), gemm, op.Reshape(product + bias), shaped + bias, product + bias, shaped, product
    )
