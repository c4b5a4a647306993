"""Activations: single ops and their written-out forms. Each is a function of the pattern of its input."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..fragments import either, in_newer_onnx, product, scaled, scaled_product, square
from ..pattern import Pattern, constant, op, value
from ..supergroup import Supergroup

Activation = Callable[[Pattern], Pattern]


def relu(x: Pattern) -> Pattern:
    """Relu, or the larger of the input and zero."""
    return op.Relu(x) | op.Max(x, 0)


def clip(x: Pattern) -> Pattern:
    """Clip with constant or given bounds (ReLU6 is one)."""
    return op.Clip(x)


def relu6(x: Pattern) -> Pattern:
    """The input limited to 0...6."""
    return op.Clip(x, min=0, max=6) | op.Min(op.Relu(x) | op.Max(x, 0), 6)


def prelu(x: Pattern) -> Pattern:
    """PRelu with a constant slope."""
    return op.PRelu(x, constant("slope"))


def softplus(x: Pattern) -> Pattern:
    """``log(1 + exp(x))``."""
    return op.Softplus(x) | op.Log(op.Exp(x) + 1)


def hard_sigmoid(x: Pattern) -> Pattern:
    """HardSigmoid with any slope, or ``clip(x + 3, 0, 6) / 6``."""
    return op.HardSigmoid(x) | scaled(relu6(x + 3), 1 / 6)


def hard_swish(x: Pattern) -> Pattern:
    """``x * clip(x + 3, 0, 6) / 6``, also through HardSigmoid."""
    gate = op.HardSigmoid(x, alpha=1 / 6, beta=0.5)
    return either(op.HardSwish(x), x * gate, scaled_product(x, relu6(x + 3), 1 / 6))


def silu(x: Pattern) -> Pattern:
    """``x * sigmoid(x)``, also called Swish."""
    return either(x * op.Sigmoid(x), *in_newer_onnx("Swish", x, alpha=1.0))


def mish(x: Pattern) -> Pattern:
    """``x * tanh(softplus(x))``."""
    return op.Mish(x) | x * op.Tanh(softplus(x))


def quick_gelu(x: Pattern) -> Pattern:
    """``x * sigmoid(1.702 x)``."""
    return x * op.Sigmoid(x * 1.702)


def gelu(x: Pattern) -> Pattern:
    """GELU by erf or by its tanh approximation, in any operand order and bracketing."""
    erf = op.Erf(scaled(x, math.sqrt(0.5)))
    gate = (1 + erf) | (1 + op.Tanh(_tanh_argument(x, math.sqrt(2 / math.pi))))
    return either(
        op.Gelu(x),
        scaled_product(x, gate, 0.5),
        x * (erf * 0.5 + 0.5),
        x * op.Sigmoid(_tanh_argument(x, 2 * math.sqrt(2 / math.pi))),
    )


def _tanh_argument(x: Pattern, factor: float) -> Pattern:
    """``factor * (x + 0.044715 x^3)``."""
    cubic = product(x, x, x, 0.044715) | x**3 * 0.044715
    even = 1 + (square(x) * 0.044715 | x * (x * 0.044715))
    return scaled(x + cubic, factor) | product(x, even, factor)


ACTIVATIONS: dict[str, Activation] = {
    "relu": relu,
    "clip": clip,
    "leaky_relu": lambda x: op.LeakyRelu(x),
    "prelu": prelu,
    "hard_swish": hard_swish,
    "hard_sigmoid": hard_sigmoid,
    "sigmoid": lambda x: op.Sigmoid(x),
    "tanh": lambda x: op.Tanh(x),
    "elu": lambda x: op.Elu(x),
    "silu": silu,
    "gelu": gelu,
    "quick_gelu": quick_gelu,
    "mish": mish,
    "softplus": softplus,
}
"""All activations that can follow another op in one supergroup."""

_WRITTEN_OUT = {
    "hard_swish": "x * clip(x + 3, 0, 6) / 6, written out or as one op",
    "hard_sigmoid": "clip(x + 3, 0, 6) / 6, written out or as one op",
    "silu": "x * sigmoid(x), written out or as one op",
    "gelu": "GELU by erf or tanh, written out or as one op",
    "quick_gelu": "x * sigmoid(1.702 x)",
    "mish": "x * tanh(softplus(x)), written out or as one op",
    "softplus": "log(1 + exp(x)), written out or as one op",
}


def activation_groups() -> tuple[Supergroup, ...]:
    """Activations on their own, for those that are often written out."""
    return tuple(
        Supergroup(name, ACTIVATIONS[name](value("x")), doc, "activation")
        for name, doc in _WRITTEN_OUT.items()
    )
