"""Attention: scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Value

from ..fragments import either, fixed, floating, in_newer_onnx, is_scalar, matmul
from ..pattern import OpPattern, Pattern, constant, op, value
from ..supergroup import BLOCK, supergroup
from .softmax import any_softmax, is_masking


@supergroup(BLOCK)
def scaled_dot_product_attention() -> Pattern:
    """softmax(q k^T * scale + mask) v, written out or as one op.

    The scale is on the scores or on what they are made of.
    """
    q, k, v = (value(name, where=floating) for name in ("q", "k", "v"))
    keys = either(op.Transpose(_scaled(k)), _scaled(op.Transpose(k)), _scaled(k))
    scores = _scaled(_passed(matmul(_scaled(q), keys)))
    capped = op.Tanh(_scaled(scores)) * fixed(where=is_scalar)
    weights = any_softmax(_passed(_masked(capped | scores)))
    kept = _passed(_passed(weights))
    without_nan = op.Where(op.IsNaN(kept) | value(), fixed(0), kept) | kept
    mixed = matmul(without_nan, v) | matmul(v, op.Transpose(without_nan))
    return either(*in_newer_onnx("Attention", q, k, v, ...), mixed)


def _scaled(x: Pattern) -> Pattern:
    """``x``, or ``x`` times or by a number that the graph may compute."""
    factor = value(where=is_one_number)
    return either(x * factor, x / factor, x)


def _passed(x: Pattern) -> Pattern:
    """``x`` in another precision or with its heads folded into the batch, or as it is."""
    return op["Cast", "Dropout", "Identity", "Reshape"](x) | x


def _masked(scores: Pattern) -> Pattern:
    """Scores to which a position bias and a mask are added, or a few of which are replaced."""
    added, replaced = scores + value("mask"), constant(where=is_masking)
    return either(
        added + value("bias"),
        added,
        op.Where(value("mask"), scores, replaced),
        op.Where(value("mask"), replaced, scores),
        scores,
    )


def is_one_number(candidate: Value) -> bool:
    """Whether a value has one element by its shape; yes if the shape is not known."""
    data = constant_data(candidate)
    shape = data.shape if data is not None else candidate.type.shape
    return shape is None or all(size == 1 for size in shape)


@supergroup(BLOCK)
def rotary_embedding() -> Pattern:
    """x * cos + rotated(x) * sin, in halves or interleaved, written out or as one op."""
    x, cos, sin = value("x", where=floating), value("cos"), value("sin")
    split = op.Split(x)
    first, second = _part(x, split, 0), _part(x, split, 1)
    turned = _joined(-second, first)
    real = either(first * cos - second * sin, first * cos + -second * sin)
    imaginary = second * cos + first * sin
    return either(
        *in_newer_onnx("RotaryEmbedding", x, cos, sin, ...), x * cos + turned * sin, _joined(real, imaginary)
    )


def _part(x: Pattern, split: OpPattern, index: int) -> Pattern:
    """A half of ``x``, or every second element of it."""
    taken = op.Slice(x) | split[index]
    return either(taken, op.Squeeze(taken), op.Gather(x, value()))


def _joined(first: Pattern, second: Pattern) -> Pattern:
    """Two parts behind each other, or their elements in turn."""
    stacked = op.Concat(op.Unsqueeze(first), op.Unsqueeze(second))
    dimensions = op.Concat(op.Slice(op.Shape(stacked)), value())  # of TorchScript, for free dimensions
    return either(op.Concat(first, second), op.Reshape(stacked, dimensions), op.Reshape(stacked), stacked)
