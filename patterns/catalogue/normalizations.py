"""Normalizations: LayerNorm, RMSNorm and their relatives, as single ops and written out by exporters.

A scale or a bias belongs to a norm only if it is constant and varies along normalized axes only: a
residual Add, a gate or a position embedding after a norm stays outside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import Shape

from ..fragments import (
    dropped_mean,
    either,
    fixed,
    floating,
    in_newer_onnx,
    is_epsilon,
    is_root_of_count,
    is_scalar,
    mean,
    parameter,
    plus,
    reciprocal,
    restored,
    sqrt,
    square,
    varying_axes,
    widened,
)
from ..pattern import Attribute, Pattern, attribute, constant, op, optional, results, value
from ..supergroup import Match, supergroup


def runs_along_normalized_axes(match: Match) -> str | None:
    """Whether scale and bias vary along the normalized axes only."""
    if match.root.is_type("LayerNormalization", "RMSNormalization"):
        return None
    axes = match.attributes.get("axes", (-1,))
    assert isinstance(axes, tuple)
    rank = match.captures["x"].type.rank
    for name in ("scale", "bias"):
        shape = shape_of(match, name)
        if shape is not None and not _fits(shape, axes, rank):
            return f"a {name} of shape {list(shape)} for a norm over the axes {list(axes)}"
    return None


def shape_of(match: Match, name: str) -> Shape | None:
    """The shape of a captured parameter; None if there is none or its rank is not known."""
    found, data = match.captures.get(name), match.constant(name)
    return data.shape if data is not None else found.type.shape if found is not None else None


def _fits(shape: Shape, axes: tuple[int, ...], rank: int | None) -> bool:
    """Whether every dimension that is not 1 lies on one of ``axes``; yes if that cannot be told."""
    varying = varying_axes(shape)
    if rank is not None:
        return varying <= {axis - rank if axis >= 0 else axis for axis in axes}
    return any(axis >= 0 for axis in axes) or varying <= set(axes)


class Standardized(NamedTuple):
    """The parts of ``(x - mean) / sqrt(variance + epsilon)``, and the quotient as ``plain``."""

    x: Pattern
    average: Pattern
    difference: Pattern
    std: Pattern
    rstd: Pattern
    plain: Pattern

    def folded(self, scale: Pattern, bias: Pattern) -> Pattern:
        """``x * factor + (bias - mean * factor)``, as TensorFlow and Keras write it."""
        factor = self.rstd * scale | self.rstd
        offset = self.average * factor
        negative = -offset | -self.average * factor
        shift = either(bias - offset, negative, negative + bias)
        return self.x * factor + shift | self.x * factor - offset

    def scaled(self, scale: Pattern) -> Pattern:
        """The quotient times ``scale`` in any bracketing."""
        return with_scale(self.difference, self.std, self.rstd, scale) | widened(self.plain) * scale


def standardized(x: Pattern, source: Pattern, axes: Attribute) -> Standardized:
    """``x`` less its mean, divided by its standard deviation.

    Args:
        x: what is normalized.
        source: what the statistics are computed from: ``x``, or ``x`` in another shape.
        axes: the reduced axes of ``source``.
    """
    average = mean(source, axes)
    difference = widened(x - average)
    centred = difference if source is x else source - average
    squares = square(centred | source - mean(source, axes))
    kept, dropped = mean(squares, axes), dropped_mean(squares, axes)
    unbiased = _unbiased(kept) | restored(_unbiased(dropped))
    std, rstd = spread(either(kept, _difference_of_means(source, axes), unbiased))
    return Standardized(x, average, difference, std, rstd, difference / std | difference * rstd)


@supergroup("normalization", inner=("epsilon",), check=runs_along_normalized_axes)
def layer_norm() -> Pattern:
    """(x - mean) / sqrt(variance + epsilon), with constant scale and bias, written out or as one op."""
    x, scale, bias = widened(value("x", where=floating)), parameter("scale"), parameter("bias")
    parts = standardized(x, x, attribute("axes"))
    affine = parts.scaled(scale)
    return either(
        op.LayerNormalization(value("x"), value("scale"), optional(value("bias")), axis=attribute("axis")),
        either(parts.folded(scale, bias), widened(affine) + bias, widened(parts.plain) + bias),
        affine,
        parts.plain,
        _through_other_norms(scale, bias),
    )


@supergroup("normalization", "layer_norm", inner=("epsilon",), check=runs_along_normalized_axes)
def layer_norm_with_statistics() -> Pattern:
    """(x - mean) / sqrt(variance + epsilon), of which mean and deviation are read outside too."""
    x, axes = widened(value("x", where=floating)), attribute("axes")
    average = op.ReduceMean(x, axes=axes, keepdims=1)
    difference = x - average
    squares = op.ReduceMean(square(difference), axes=axes, keepdims=1)
    of_squares = op.ReduceMean(square(x), axes=axes, keepdims=1) - square(average)
    std = op.Sqrt(plus(squares | of_squares, fixed("epsilon", is_epsilon)))
    return results(difference / std, average, std)


def _through_other_norms(scale: Pattern, bias: Pattern) -> Pattern:
    """LayerNorm by an InstanceNormalization (tf2onnx) or a BatchNormalization in training mode (Keras)."""
    x, batch_axes = value("x", where=floating), attribute("batch_axes")
    by_instance = op.InstanceNormalization(x, filled(1), filled(0))
    average = op.ReduceMean(x, axes=batch_axes, keepdims=1)
    total = op.ReduceSumSquare(x - average, axes=batch_axes, keepdims=0)
    by_batch = op.BatchNormalization(x, filled(1), filled(0), op.Squeeze(average), total / value())
    plain = by_instance | op.Reshape(by_batch)
    return either(plain * scale + bias, plain * scale, plain + bias)


@supergroup("normalization", inner=("epsilon",), check=runs_along_normalized_axes)
def rms_norm() -> Pattern:
    """x / sqrt(mean(x^2) + epsilon), with constant scale, written out or as one op."""
    source, axes, scale, bias = (
        value("x", where=floating),
        attribute("axes"),
        parameter("scale"),
        parameter("bias"),
    )
    x, squares = widened(source), square(widened(source))
    std, rstd = spread(mean(squares, axes) | op.ReduceMean(squares, value(), keepdims=1))
    length = op["Mul", "Div"](op.ReduceL2(source, axes=axes, keepdims=1), constant(where=is_root_of_count))
    by_length = source / _floored(length)
    plain = either(x / std, x * rstd, by_length)
    scaled = with_scale(x, std, rstd, scale) | widened(plain) * scale
    one_op = in_newer_onnx("RMSNormalization", value("x"), value("scale"))
    return either(*one_op, scaled + bias, scaled, plain)


@supergroup("normalization", inner=("epsilon",), check=runs_along_normalized_axes)
def l2_norm() -> Pattern:
    """x divided by its Euclidean length, with constant scale."""
    x, axes = value("x", where=floating), attribute("axes")
    length = op.ReduceL2(x, axes=axes, keepdims=1)
    squares = square(x | op.Abs(x))
    kept = op.ReduceSum(squares, axes=axes, keepdims=1) | op.ReduceSumSquare(x, axes=axes, keepdims=1)
    dropped = op.ReduceSum(squares, axes=axes, keepdims=0) | op.ReduceSumSquare(x, axes=axes, keepdims=0)
    total = kept | restored(dropped)
    root = sqrt(_floored(total)) | restored(sqrt(dropped))
    spread = either(_floored(length), _floored(root))
    wide = spread | op.Expand(spread)
    plain = either(op.LpNormalization(x, p=2), x / wide, x * reciprocal(wide))
    return plain * parameter("scale") | plain


def _floored(x: Pattern) -> Pattern:
    """A number that is not negative, kept from zero by an epsilon or as it is."""
    epsilon = fixed("epsilon", is_epsilon)
    return either(op.Clip(x), op.Max(x, epsilon), plus(x, epsilon), x)


def _difference_of_means(x: Pattern, axes: Attribute) -> Pattern:
    """The variance as ``mean(x^2) - mean(x)^2``, with the reduced dimensions kept or put back after it."""
    kept = mean(square(x), axes) - square(mean(x, axes))
    dropped = dropped_mean(square(x), axes) - square(dropped_mean(x, axes))
    return _not_negative(kept) | restored(_not_negative(dropped))


def _unbiased(squares: Pattern) -> Pattern:
    """A mean of squares times ``n / (n - 1)``, as the deviation of PyTorch has it."""
    return squares * value() / value() | squares * constant(where=is_scalar)


def _not_negative(x: Pattern) -> Pattern:
    return op.Max(x, 0) | op.Relu(x) | x


def spread(variance: Pattern) -> tuple[Pattern, Pattern]:
    """The standard deviation, kept from zero by an epsilon, and its reciprocal."""
    guarded = _floored(variance)
    std = sqrt(guarded) | plus(sqrt(variance), fixed("epsilon", is_epsilon))
    return std, reciprocal(std) | guarded**-0.5


def with_scale(d: Pattern, std: Pattern, rstd: Pattern, scale: Pattern) -> Pattern:
    """``d * scale / std`` in any bracketing but that which has the plain quotient."""
    return either(d * (rstd * scale), (d * scale) * rstd, (d * scale) / std, d * (scale / std))


def filled(number: float) -> Pattern:
    """A tensor whose elements are all ``number``; one that the graph makes is taken at its word."""

    def is_filled(data: TensorRef) -> bool:
        return data.is_small and bool(np.all(data.numpy() == number))

    return constant(where=is_filled) | op.ConstantOfShape(value())
