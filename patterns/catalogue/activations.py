"""Activations: single ops and their written-out forms, each a function of the pattern of its input.

The docstring is the formula that ``qc list-supergroups`` shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..fragments import (
    either,
    fixed,
    in_newer_onnx,
    is_scalar,
    is_slope,
    limited,
    parameter,
    plus,
    product,
    reciprocal,
    scaled,
    scaled_product,
    square,
    varying,
)
from ..pattern import Pattern, op, value
from ..supergroup import Match, Supergroup

Activation = Callable[[Pattern], Pattern]


def relu(x: Pattern) -> Pattern:
    """max(x, 0)."""
    return op.Relu(x) | op.Max(x, 0)


def clip(x: Pattern) -> Pattern:
    """clip(x, low, high), by Min and Max."""
    low, high = fixed(where=is_scalar), fixed(where=is_scalar)
    return either(op.Clip(x), op.Min(op.Max(x, low), high), op.Max(op.Min(x, high), low))


def relu6(x: Pattern) -> Pattern:
    """clip(x, 0, 6), by Min and Max."""
    return limited(x, 0, 6)


def leaky_relu(x: Pattern) -> Pattern:
    """max(x, slope * x)."""
    sloped = x * fixed(where=is_slope)
    return either(op.LeakyRelu(x), op.Max(x, sloped), _by_sign(x, sloped))


def prelu(x: Pattern) -> Pattern:
    """relu(x) + slope * min(x, 0) with a constant slope."""
    slope = parameter("slope")
    positive, below = relu(x), op.Min(x, 0)
    flipped, twice_below = op.Relu(-x), x - op.Abs(x)
    return either(
        op.PRelu(x, slope),
        _by_sign(x, x * slope),
        positive + either(below * slope, flipped * slope, product(twice_below, slope, 0.5)),
        positive - flipped * slope,
    )


def _by_sign(positive: Pattern, negative: Pattern) -> Pattern:
    """One value where it is positive, the other one elsewhere."""
    is_negative = op["Less", "LessOrEqual"](positive, fixed(0))
    is_positive = op["Greater", "GreaterOrEqual"](positive, fixed(0)) | op.Not(is_negative)
    return op.Where(is_positive, positive, negative) | op.Where(is_negative, negative, positive)


def sigmoid(x: Pattern) -> Pattern:
    """1 / (1 + exp(-x))."""
    return op.Sigmoid(x) | reciprocal(1 + op.Exp(-x))


def hard_sigmoid(x: Pattern) -> Pattern:
    """clip(a * x + b, 0, 1)."""
    line = plus(op["Mul", "Div"](x, fixed(where=is_scalar)), fixed(where=is_scalar))
    return either(op.HardSigmoid(x), scaled(relu6(x + 3), 1 / 6), limited(line, 0, 1))


def hard_swish(x: Pattern) -> Pattern:
    """x * clip(x + 3, 0, 6) / 6."""
    gate = op.HardSigmoid(x, alpha=1 / 6, beta=0.5) | limited(scaled(x, 1 / 6) + 0.5, 0, 1)
    return either(op.HardSwish(x), x * gate, scaled_product(x, relu6(x + 3), 1 / 6))


def silu(x: Pattern) -> Pattern:
    """x * sigmoid(x)."""
    gate = sigmoid(x) | op.Sigmoid(x * fixed(1))
    return either(x * gate, x / (1 + op.Exp(-x)), *in_newer_onnx("Swish", x, alpha=1.0))


def softplus(x: Pattern) -> Pattern:
    """log(1 + exp(x))."""
    stable = relu(x) + op.Log(op.Exp(-op.Abs(x)) + 1)
    plain = either(op.Softplus(x), op.Log(op.Exp(x) + fixed(1)), stable)
    return plain | op.Where(op.Greater(x, fixed(where=is_scalar)), x, plain)


def mish(x: Pattern) -> Pattern:
    """x * tanh(softplus(x))."""
    return op.Mish(x) | x * op.Tanh(softplus(x))


def quick_gelu(x: Pattern) -> Pattern:
    """x * sigmoid(1.702 x)."""
    return either(x * op.Sigmoid(x * 1.702), *in_newer_onnx("Swish", x, alpha=1.702))


def gelu(x: Pattern) -> Pattern:
    """GELU by erf or tanh."""
    erf, half, one = op.Erf(_over_root_of_two(x)), fixed(0.5), fixed(1)
    gate = either(
        plus(erf, one),
        1 - op.Erf(-_over_root_of_two(x) | _over_root_of_two(-x) | x * -math.sqrt(0.5)),  # erfc
        plus(op.Tanh(_tanh_argument(x, math.sqrt(2 / math.pi))), one),
    )
    return either(
        op.Gelu(x),
        scaled_product(x, gate, 0.5),
        x * (erf * half + half),
        x * op.Sigmoid(_tanh_argument(x, 2 * math.sqrt(2 / math.pi))),
    )


def _over_root_of_two(x: Pattern) -> Pattern:
    return scaled(x, math.sqrt(0.5)) | x / op.Sqrt(fixed(2))


def _tanh_argument(x: Pattern, number: float) -> Pattern:
    """``number * (x + 0.044715 x^3)``."""
    small, factor = fixed(0.044715), fixed(number) | op.Sqrt(fixed(number**2))
    cubic = product(x, x, x, small) | x ** fixed(3) * small
    even = 1 + (square(x) * small | x * (x * small))
    return (plus(x, cubic) * factor) | product(x, even, factor)


ACTIVATIONS: dict[str, Activation] = {
    "relu": relu,
    "clip": lambda x: op.Clip(x),  # Min and Max after another op are no one-op activation to devices
    "relu6": relu6,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "hard_swish": hard_swish,
    "hard_sigmoid": hard_sigmoid,
    "sigmoid": sigmoid,
    "tanh": lambda x: op.Tanh(x),
    "elu": lambda x: op.Elu(x),
    "silu": silu,
    "gelu": gelu,
    "quick_gelu": quick_gelu,
    "mish": mish,
    "softplus": softplus,
}
"""All activations that can follow another op in one supergroup."""

_OFTEN_ONE_OP = ("relu6", "clip", "leaky_relu", "prelu", "sigmoid")
_OFTEN_WRITTEN_OUT = ("hard_swish", "hard_sigmoid", "silu", "gelu", "quick_gelu", "mish", "softplus")


def activation_groups() -> tuple[Supergroup, ...]:
    """Activations on their own, for those that are often written out.

    Where ONNX has had an op from its beginnings, targets have a rule for that op, and it is no group.
    """
    spellings = {**ACTIVATIONS, "clip": clip}
    x = value("x", where=varying)
    groups = []
    for name in (*_OFTEN_ONE_OP, *_OFTEN_WRITTEN_OUT):
        formula = str(spellings[name].__doc__).rstrip(".")
        check, how = (_refuse_one_op, "") if name in _OFTEN_ONE_OP else (None, " or as one op")
        doc = f"{formula}, written out{how}"
        groups.append(Supergroup(name, spellings[name](x), doc, "activation", check=check))
    return tuple(groups)


def _refuse_one_op(match: Match) -> str | None:
    return "one op" if len(match.ops) == 1 else None
