"""Weighted ops (Conv, ConvTranspose, Gemm, MatMul) and element-wise ops, with what follows them.

The names of the matches are made of parts: a head (``conv``, ``conv_bn``, ``matmul_bias``, ``add``) and
an activation (``relu``, ``gelu``), so that a target can choose them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..attributes import constant_data
from ..match import Match
from ..pattern import Pattern, choice, constant, op, optional, value
from ..supergroup import Supergroup
from .activations import ACTIVATIONS

Head = Callable[[], Pattern]


def _plain(op_type: str) -> Pattern:
    if op_type == "MatMul":
        return op.MatMul(value("x"), value("weight"))
    return op[op_type](value("x"), value("weight"), optional(value("bias")))


def _biased(op_type: str) -> Pattern:
    return op[op_type](value("x"), constant("weight")) + constant("bias")


def _normalized(weighted: Pattern) -> Pattern:
    parameters = (constant(f"bn_{name}") for name in ("scale", "bias", "mean", "variance"))
    return op.BatchNormalization(weighted, *parameters)


_OPS = {"conv": "Conv", "conv_transpose": "ConvTranspose", "gemm": "Gemm", "matmul": "MatMul"}


def weighted_heads() -> dict[str, Pattern]:
    """A weighted op alone, with a bias added after it, with a batch norm, with both; longest first."""
    heads: dict[str, Pattern] = {}
    for name, op_type in _OPS.items():
        heads[f"{name}_bias_bn"] = _normalized(_biased(op_type))
        heads[f"{name}_bn"] = _normalized(_plain(op_type))
        heads[f"{name}_bias"] = _biased(op_type)
        heads[name] = _plain(op_type)
    return heads


def elementwise_heads() -> dict[str, Pattern]:
    """Unweighted ops that some targets compute together with an activation."""
    return {
        "add": op.Add(value("a"), value("b")),
        "sub": op.Sub(value("a"), value("b")),
        "mul": op.Mul(value("a"), value("b")),
        "bn": _normalized(value("x")),
        "average_pool": op.AveragePool(value("x")),
        "max_pool": op.MaxPool(value("x")),
    }


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
