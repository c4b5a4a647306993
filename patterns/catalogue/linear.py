"""Weighted ops (Conv, ConvTranspose, Gemm, MatMul) and element-wise ops, with what follows them.

The names of the matches are made of parts: a head (``conv``, ``conv_bn``, ``matmul_bias``, ``add``) and
an activation (``relu``, ``gelu``), so that a target can choose them one by one.
"""

from __future__ import annotations

from collections.abc import Collection

from ..attributes import constant_data
from ..fragments import floating
from ..match import Match
from ..pattern import Pattern, choice, constant, op, optional, value
from ..supergroup import Supergroup
from .activations import ACTIVATIONS

_OPS = {"conv": "Conv", "conv_transpose": "ConvTranspose", "gemm": "Gemm", "matmul": "MatMul"}


def weighted_heads() -> dict[str, Pattern]:
    """A weighted op alone, with a bias added after it, with a batch norm, with both; longest first."""
    x, weight, bias = value("x", where=floating), value("weight"), value("bias")
    fixed_weight, fixed_bias = constant("weight"), constant("bias")
    parameters = _batch_norm_parameters()
    heads: dict[str, Pattern] = {}
    for name, op_type in _OPS.items():
        plain = op.MatMul(x, weight) if op_type == "MatMul" else op[op_type](x, weight, optional(bias))
        biased = op[op_type](x, fixed_weight) + fixed_bias
        heads[f"{name}_bias_bn"] = op.BatchNormalization(biased, *parameters)
        heads[f"{name}_bn"] = op.BatchNormalization(plain, *parameters)
        heads[f"{name}_bias"] = biased
        heads[name] = plain
    return heads


def elementwise_heads() -> dict[str, Pattern]:
    """Unweighted ops that some targets compute together with an activation."""
    a, b, x = (value(name, where=floating) for name in ("a", "b", "x"))
    return {
        "add": op.Add(a, b),
        "sub": op.Sub(a, b),
        "mul": op.Mul(a, b),
        "bn": op.BatchNormalization(x, *_batch_norm_parameters()),
        "average_pool": op.AveragePool(x),
        "max_pool": op.MaxPool(x),
    }


def _batch_norm_parameters() -> list[Pattern]:
    return [constant(f"bn_{name}") for name in ("scale", "bias", "mean", "variance")]


def linear_groups(wanted: Collection[str] | None = None) -> tuple[Supergroup, ...]:
    """Heads with activations, then heads with a bias or a batch norm alone.

    Args:
        wanted: the names to build; None for all.
    """
    groups = []
    for activation in ACTIVATIONS:
        for kind, make in _KINDS.items():
            heads = {
                head: p for head, p in make().items() if wanted is None or f"{head}_{activation}" in wanted
            }
            if heads:
                pattern = ACTIVATIONS[activation](choice("head", heads))
                doc = f"an op followed by {activation}: {', '.join(heads)}"
                groups.append(
                    Supergroup(f"{{head}}_{activation}", pattern, doc, kind, check=bias_is_per_channel)
                )
    composite = {head: p for head, p in weighted_heads().items() if head not in _OPS}
    composite = {head: p for head, p in composite.items() if wanted is None or head in wanted}
    if composite:
        doc = "a weighted op followed by a bias or a batch norm"
        groups.append(
            Supergroup("{head}", choice("head", composite), doc, "weighted", check=bias_is_per_channel)
        )
    return tuple(groups)


_KINDS = {"weighted_activation": weighted_heads, "elementwise_activation": elementwise_heads}


def linear_names() -> list[str]:
    """All names of matches that :func:`linear_groups` can make."""
    heads = [*weighted_heads(), *elementwise_heads()]
    with_activation = [f"{head}_{activation}" for activation in ACTIVATIONS for head in heads]
    return with_activation + [head for head in weighted_heads() if head not in _OPS]


def bias_is_per_channel(match: Match) -> str | None:
    """Whether a bias that is added after the weighted op has one element per output channel."""
    head = match.choices["head"]
    weight, bias = constant_data(match.captures.get("weight")), constant_data(match.captures.get("bias"))
    if "_bias" not in head or weight is None or bias is None:
        return None
    convolution = head.startswith("conv")
    channel = 1 - len(weight.shape) if convolution else -1
    varying = {index - len(bias.shape) for index, size in enumerate(bias.shape) if size != 1}
    if varying <= {channel}:
        return None
    return f"a bias of shape {list(bias.shape)} that is not one value per output channel"
