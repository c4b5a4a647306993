"""Weighted ops (Conv, ConvTranspose, Gemm, MatMul) and element-wise ops, with what follows them.

The names of the matches are made of parts: a head (``conv``, ``conv_bn``, ``matmul_bias``, ``add``) and
an activation (``relu``, ``gelu``), so that a target can choose them one by one.
"""

from __future__ import annotations

from collections.abc import Collection

from qc.ir.tensor_ref import TensorRef

from ..fragments import either, floating
from ..match import Match
from ..pattern import Pattern, choice, constant, op, optional, value
from ..supergroup import Supergroup
from .activations import ACTIVATIONS

_AFFINE = ("mean", "deviation", "scale", "shift")
_OPS = {"conv": "Conv", "conv_transpose": "ConvTranspose", "gemm": "Gemm", "matmul": "MatMul"}


def weighted_heads() -> dict[str, Pattern]:
    """A weighted op alone, or followed by a bias, a batch norm, both, or a constant scale and shift."""
    x, weight, bias = value("x", where=floating), value("weight"), value("bias")
    fixed_weight, fixed_bias = constant("weight"), constant("bias")
    parameters = _batch_norm_parameters()
    heads: dict[str, Pattern] = {}
    for name, op_type in _OPS.items():
        plain = op.MatMul(x, weight) if op_type == "MatMul" else op[op_type](x, weight, optional(bias))
        alone = op[op_type](x, fixed_weight)
        biased = (op.Reshape(alone) | alone if op_type == "MatMul" else alone) + fixed_bias
        heads[f"{name}_bias_bn"] = op.BatchNormalization(biased, *parameters)
        heads[f"{name}_affine"] = _affine(plain)
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
        "affine": _affine(x),
        "bn": op.BatchNormalization(x, *_batch_norm_parameters()),
        "average_pool": op.AveragePool(x),
        "max_pool": op.MaxPool(x),
    }


def _affine(x: Pattern) -> Pattern:
    """A BatchNorm written out, with its four parameters or with what became of them."""
    scale, shift, mean = constant("scale"), constant("shift"), constant("mean")
    scaled, centred = x * scale | x / scale, x - mean
    normalized = either(centred / constant("deviation") * scale, centred * scale, centred / scale)
    return either(normalized + shift, scaled + shift, scaled - shift)


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
                doc = f"{_ACTIVATED[kind]} followed by {activation}"
                groups.append(Supergroup(f"{{head}}_{activation}", pattern, doc, kind, check=is_per_channel))
    for kind, composite in _composite_heads().items():
        heads = {head: p for head, p in composite.items() if wanted is None or head in wanted}
        if heads:
            pattern = choice("head", heads)
            groups.append(Supergroup("{head}", pattern, _COMPOSITE[kind], kind, check=is_per_channel))
    return tuple(groups)


def _composite_heads() -> dict[str, dict[str, Pattern]]:
    """By kind, the heads that are worth a name without an activation, longest first."""
    weighted = {head: pattern for head, pattern in weighted_heads().items() if head not in _OPS}
    return {"weighted": weighted, "elementwise": {"affine": elementwise_heads()["affine"]}}


_ACTIVATED = {"weighted_activation": "a weighted op", "elementwise_activation": "another op"}
_COMPOSITE = {
    "weighted": "a weighted op followed by a bias, a BatchNorm or both, or by Mul and Add per channel",
    "elementwise": "a BatchNorm written out: Mul and Add with constants per channel",
}
_KINDS = {"weighted_activation": weighted_heads, "elementwise_activation": elementwise_heads}


def linear_names() -> list[str]:
    """All names of matches that :func:`linear_groups` can make."""
    heads = [*weighted_heads(), *elementwise_heads()]
    names = [f"{head}_{activation}" for activation in ACTIVATIONS for head in heads]
    return names + [head for composite in _composite_heads().values() for head in composite]


def is_per_channel(match: Match) -> str | None:
    """Whether what the result is combined with after the op has one element, or one per output channel."""
    head = match.choices["head"]
    weight = match.constant("weight")
    for name in ("bias",) * ("_bias" in head) + _AFFINE:
        data = match.constant(name)
        if data is not None and not _varies_along(data.shape, _channel_axis(head, weight)):
            return f"a {name} of shape {list(data.shape)} that is not one value per output channel"
    return None


def _channel_axis(head: str, weight: TensorRef | None) -> int | None:
    """The axis of the output channels, counted from the end; None when it cannot be told."""
    if head.startswith("conv"):
        return 1 - len(weight.shape) if weight is not None else None
    return -1 if head.startswith(("gemm", "matmul")) else None


def _varies_along(shape: tuple[int, ...], axis: int | None) -> bool:
    """Whether a constant varies along this axis only; along one at most when the axis is not known."""
    varying = {index - len(shape) for index, size in enumerate(shape) if size != 1}
    return len(varying) <= 1 if axis is None else varying <= {axis}
