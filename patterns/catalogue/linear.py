"""Weighted ops (Conv, ConvTranspose, Gemm, MatMul) and element-wise ops, with what follows them.

The names of the matches are made of parts: a head (``conv``, ``conv_bn``, ``matmul_bias``, ``add``) and
an activation (``relu``, ``gelu``) if there is one, so that a target can choose them one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from qc.ir.tensor_ref import TensorRef

from ..fragments import either, floating
from ..pattern import Pattern, choice, constant, op, optional, value
from ..supergroup import Match, Supergroup
from .activations import ACTIVATIONS

_AFFINE = ("mean", "deviation", "scale", "shift")
_OPS = {"conv": "Conv", "conv_transpose": "ConvTranspose", "gemm": "Gemm", "matmul": "MatMul"}


def weighted_heads() -> dict[str, Pattern]:
    """A weighted op alone, or followed by a bias, a batch norm, both, or a constant scale and shift."""
    x, weight, bias = value("x", where=floating), value("weight"), value("bias")
    fixed_weight, fixed_bias = constant("weight"), constant("bias")
    heads: dict[str, Pattern] = {}
    for name, op_type in _OPS.items():
        plain = op.MatMul(x, weight) if op_type == "MatMul" else op[op_type](x, weight, optional(bias))
        alone = op[op_type](x, fixed_weight)
        biased = (op.Reshape(alone) | alone if op_type == "MatMul" else alone) + fixed_bias
        heads[f"{name}_bias_bn"] = _batch_norm(biased)
        heads[f"{name}_affine"] = _affine(plain)
        heads[f"{name}_bn"] = _batch_norm(plain)
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
        "bn": _batch_norm(x),
        "average_pool": op.AveragePool(x),
        "max_pool": op.MaxPool(x),
    }


def _affine(x: Pattern) -> Pattern:
    """A BatchNorm written out, with its four parameters or with what became of them."""
    scale, shift, mean = constant("scale"), constant("shift"), constant("mean")
    scaled, centred = x * scale | x / scale, x - mean
    normalized = either(centred / constant("deviation") * scale, centred * scale, centred / scale)
    return either(normalized + shift, scaled + shift, scaled - shift)


def _batch_norm(x: Pattern) -> Pattern:
    """A BatchNorm by known statistics; no device measures a batch within an op, as training does."""
    parameters = [constant(f"bn_{name}") for name in ("scale", "bias", "mean", "variance")]
    return op.BatchNormalization(x, *parameters, training_mode=0)


def linear_groups(wanted: Collection[str] | None = None) -> tuple[Supergroup, ...]:
    """Weighted ops, then others: each head with each activation, and the heads that count without one.

    Args:
        wanted: the names to build; None for all.
    """
    weighted, elementwise = weighted_heads(), elementwise_heads()
    after_weighted = (
        "a weighted op followed by a bias, a BatchNorm, Mul and Add per channel, or an activation"
    )
    after_others = "another op followed by an activation, or a BatchNorm written out as Mul and Add"
    groups = (
        _family("weighted", after_weighted, weighted, weighted.keys() - _OPS, wanted),
        _family("elementwise", after_others, elementwise, {"affine"}, wanted),
    )
    return tuple(group for group in groups if group is not None)


def _family(
    kind: str, doc: str, heads: Mapping[str, Pattern], alone: AbstractSet[str], wanted: Collection[str] | None
) -> Supergroup | None:
    """The wanted combinations of a head and an activation, of which those in ``alone`` need none."""
    options: dict[str, Pattern] = {}
    for activation, after in {**ACTIVATIONS, "": _nothing}.items():
        names = {head: f"{head}_{activation}" if activation else head for head in heads}
        chosen = {
            head: heads[head]
            for head, name in names.items()
            if (activation or head in alone) and (wanted is None or name in wanted)
        }
        if chosen:
            options[activation] = after(choice("head", chosen))
    if not options:
        return None
    return Supergroup("{head}_{activation}", choice("activation", options), doc, kind, check=is_per_channel)


def _nothing(x: Pattern) -> Pattern:
    return x


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
