"""Normalizations: LayerNorm, RMSNorm and their relatives, as single ops and written out by exporters.

A scale or a bias belongs to a norm only if it is constant and varies along normalized axes only: a
residual Add, a gate or a position embedding after a norm stays outside.
"""

from __future__ import annotations

from ..attributes import constant_data
from ..fragments import (
    dropped_mean,
    either,
    floating,
    in_newer_onnx,
    is_epsilon,
    mean,
    product,
    reciprocal,
    restored,
    sqrt,
    square,
    widened,
)
from ..match import Match
from ..pattern import Attribute, Pattern, attribute, constant, op, optional, value
from ..supergroup import Supergroup


def layer_norm() -> Pattern:
    """``(x - mean(x)) / sqrt(var(x) + epsilon)``, then scale and bias if they are constant."""
    x, axes = widened(value("x", where=floating)), attribute("axes")
    scale, bias = constant("scale"), constant("bias")
    average = mean(x, axes)
    d = x - average
    again = d | x - mean(x, axes)
    variance = mean(square(again), axes) | _difference_of_means(x, axes)
    std, rstd = _spread(variance)
    plain = d / std | d * rstd
    affine = _with_scale(d, std, rstd, scale)
    shift = rstd * scale
    folded = x * shift + (bias - average * shift)
    written_out = either(folded, widened(affine) + bias, widened(plain) * scale + bias, widened(plain) + bias)
    return either(
        op.LayerNormalization(
            value("x"), constant("scale"), optional(constant("bias")), axis=attribute("axis")
        ),
        written_out,
        affine,
        widened(plain) * scale,
        plain,
    )


def rms_norm() -> Pattern:
    """``x / sqrt(mean(x^2) + epsilon)``, then a scale if it is constant."""
    source, axes, scale = value("x", where=floating), attribute("axes"), constant("scale")
    x = widened(source)
    std, rstd = _spread(mean(square(widened(source)), axes))
    plain = x / std | x * rstd
    return either(
        *in_newer_onnx("RMSNormalization", value("x"), constant("scale")),
        _with_scale(x, std, rstd, scale),
        widened(plain) * scale,
        plain,
    )


def l2_norm() -> Pattern:
    """``x / max(|x|, epsilon)``: division by the Euclidean length."""
    x, axes = value("x", where=floating), attribute("axes")
    length = op.ReduceL2(x, axes=axes, keepdims=1)
    total = op.ReduceSum(square(x), axes=axes, keepdims=1) | op.ReduceSumSquare(x, axes=axes, keepdims=1)
    epsilon = constant("epsilon", where=is_epsilon)
    floored = op.Clip(length) | op.Max(length, epsilon) | length + epsilon
    root = sqrt(total + epsilon | op.Max(total, epsilon) | op.Clip(total) | total)
    std = either(floored, root, length)
    spread = std | op.Expand(std)
    return either(op.LpNormalization(x, p=2), x / spread, x * reciprocal(spread))


def softmax() -> Pattern:
    """``exp(x - max(x)) / sum(exp(x - max(x)))``."""
    x, axes = value("x", where=floating), attribute("axes")
    kept, dropped = op.ReduceMax(x, axes=axes, keepdims=1), op.ReduceMax(x, axes=axes, keepdims=0)
    peak = kept | restored(dropped | op.Max(dropped, constant()))
    e = op.Exp(x - peak | x)
    total = op.ReduceSum(e, axes=axes, keepdims=1) | restored(op.ReduceSum(e, axes=axes, keepdims=0))
    return e / total | e * reciprocal(total)


def _difference_of_means(x: Pattern, axes: Attribute) -> Pattern:
    """The variance as ``mean(x^2) - mean(x)^2``, with the reduced dimensions kept or put back after it."""
    kept = mean(square(x), axes) - square(mean(x, axes))
    dropped = dropped_mean(square(x), axes) - square(dropped_mean(x, axes))
    return _not_negative(kept) | restored(_not_negative(dropped))


def _not_negative(x: Pattern) -> Pattern:
    return op.Max(x, 0) | op.Relu(x) | x


def _spread(variance: Pattern) -> tuple[Pattern, Pattern]:
    """The standard deviation, kept from zero by an epsilon, and its reciprocal."""
    epsilon = constant("epsilon", where=is_epsilon)
    guarded = variance + epsilon
    std = either(sqrt(guarded), sqrt(variance) + epsilon)
    return std, reciprocal(std) | guarded**-0.5


def _with_scale(d: Pattern, std: Pattern, rstd: Pattern, scale: Pattern) -> Pattern:
    """``d * scale / std`` in any bracketing."""
    return either(product(d, rstd, scale), (d / std) * scale, (d * scale) / std, d * (scale / std))


def runs_along_normalized_axes(match: Match) -> str | None:
    """Whether scale and bias vary along the normalized axes only."""
    axes, x = match.attributes.get("axes"), match.captures["x"]
    if not isinstance(axes, tuple):
        return None
    rank = len(x.type.shape) if x.type.shape is not None else None
    for name in ("scale", "bias"):
        data = constant_data(match.captures.get(name))
        if data is not None and not _fits(data.shape, axes, rank):
            return f"a {name} of shape {list(data.shape)} for a norm over the axes {list(axes)}"
    return None


def _fits(shape: tuple[int, ...], axes: tuple[int, ...], rank: int | None) -> bool:
    """Whether every dimension that is not 1 lies on one of ``axes``; yes if that cannot be told."""
    varying = {index - len(shape) for index, size in enumerate(shape) if size != 1}
    if rank is not None:
        return varying <= {axis - rank if axis >= 0 else axis for axis in axes}
    return any(axis >= 0 for axis in axes) or varying <= set(axes)


def normalization_groups() -> tuple[Supergroup, ...]:
    """All normalizations."""
    inner, check = frozenset({"epsilon"}), runs_along_normalized_axes
    return (
        Supergroup(
            "layer_norm",
            layer_norm(),
            "(x - mean) / sqrt(variance + epsilon), with constant scale and bias, written out or as one op",
            "normalization",
            inner,
            check,
        ),
        Supergroup(
            "rms_norm",
            rms_norm(),
            "x / sqrt(mean(x^2) + epsilon), with constant scale, written out or as one op",
            "normalization",
            inner,
            check,
        ),
        Supergroup("l2_norm", l2_norm(), "x divided by its Euclidean length", "normalization", inner),
        Supergroup("softmax", softmax(), "exp(x - max) / sum(exp(x - max)), written out", "softmax"),
    )
