"""Keeps OpenVINO from moving constants of elementwise functions where they do not belong.

OpenVINO 2026.4 multiplies in front of Relu, LeakyRelu, PRelu and MaxPool what is multiplied behind them where
that ends in a rounding, which is the same for factors above 0 alone; behind an AveragePool it multiplies the
limits of the rounding, which is so, too. Where a length is free it moves constants into the limits of the
rounding behind: factors below 0 leave the upper limits below the lower, constants that come first are moved
wrongly, and limits for each row behind a product it refuses; factors for each row of a product of matrices it
multiplies with the wrong numbers. It does not see through a LeakyRelu of slope 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..neighbours import (
    FOLDED,
    comes_from,
    comes_to,
    computed_input,
    has_known_lengths,
    put_identity_behind,
    stored_codes,
)

_KINKED = ("AveragePool", "LeakyRelu", "MaxPool", "PRelu", "Relu")


def keep_constants(model: Model, rewriter: Rewriter) -> None:
    """Puts a LeakyRelu between factors below 0 and such an activation or rounding, and constants second."""
    ops = [op for op in model.ops() if op.is_type("Neg", *FOLDED)]
    found = [(op, source) for op in ops if (source := computed_input(op)) is not None and source.is_float]
    swapped = [op for op, source in found if _is_free_sum(op) and op.inputs[1] is source]
    edges = [edge for op, source in found for edge in _edges_to_keep(op, source)]
    for op in swapped:
        _swap(rewriter, op)
    for value, reader in edges:
        put_identity_behind(rewriter, value, reader)


def _edges_to_keep(op: Op, source: Value) -> Iterator[tuple[Value, Op | None]]:
    """Tensors, with the op alone for which a LeakyRelu stands behind them, or None for all that read them."""
    (result, *_) = op.outputs
    turns_sign = _turns_sign(op, source)
    is_behind_kink = turns_sign and _is_kinked(source)
    if is_behind_kink or _scales_rows(op, source):
        yield source, op
    turns_limits = turns_sign and not is_behind_kink and op.is_type("Div", "Mul")
    moves_limits = turns_limits or (op.is_type("Div", "Mul", "Sub") and _is_by_rows(op, source))
    if result is not None and moves_limits and _is_rounded_later(result):
        yield result, None


def _is_free_sum(op: Op) -> bool:
    """Whether an op adds or multiplies, and its result has a free length."""
    return op.is_type("Add", "Mul") and not has_known_lengths(op.outputs[0])


def _swap(rewriter: Rewriter, op: Op) -> None:
    first, second = op.inputs
    with rewriter.action("put the constant second", op):
        rewriter.set_input(op, 0, second)
        rewriter.set_input(op, 1, first)


def _turns_sign(op: Op, data: Value) -> bool:
    if op.is_type("Neg", "Sub"):
        return op.is_type("Neg") or op.inputs[0] is not data
    factors = op.inputs[:2] if op.is_type("BatchNormalization", "Div", "Mul") else []
    return any(_has_negative(value) for value in factors if value is not None and value is not data)


def _has_negative(factor: Value) -> bool:
    """Whether a number of a constant is below 0, or may be."""
    numbers, codes, producer = constant_numbers(factor), stored_codes(factor), factor.producer
    if numbers is not None or codes is None or producer is None:
        return numbers is None or bool((numbers < 0).any())
    zero_point = constant_numbers(producer.inputs[2]) if producer.num_inputs > 2 else None
    return bool(
        (codes.numpy().astype(np.float64) < (0 if zero_point is None else float(zero_point.max()))).any()
    )


def _is_kinked(value: Value) -> bool:
    """Whether such an activation makes a tensor, be it in front of what it is scaled or shifted by."""
    return comes_from(value, lambda op: op.is_type(*_KINKED), _is_passed)


def _is_passed(op: Op) -> bool:
    is_rounded = is_qdq(op, "QuantizeLinear") or is_qdq(op, "DequantizeLinear")
    return is_rounded or is_grid_preserving(op) or op.is_type("Clip", "Neg", *_KINKED, *FOLDED)


def _scales_rows(op: Op, data: Value) -> bool:
    """Whether rows of a product of matrices have factors of their own, and a length is free."""
    if has_known_lengths(data) or not op.is_type("BatchNormalization", "Div", "Mul"):
        return False
    shapes = [value.type.shape or () for value in _others(op, data)]
    is_for_rows = op.is_type("BatchNormalization") and len(data.type.shape or ()) > 2
    is_for_rows = is_for_rows or any(set(shape[:-1]) - {1} for shape in shapes)
    return is_for_rows and comes_from(data, _is_matrix_product, lambda op: op.is_type(*FOLDED))


def _is_matrix_product(op: Op) -> bool:
    return op.is_type("Gemm", "MatMul")


def _others(op: Op, data: Value) -> list[Value]:
    return [value for value in op.inputs if value is not None and value is not data]


def _is_by_rows(op: Op, data: Value) -> bool:
    """Whether a factor for each row stands behind a product, whose channels are along the last axis."""
    shapes = [value.type.shape or () for value in _others(op, data)]
    is_vector = any(shape[-1:] == (1,) and set(shape) != {1} for shape in shapes)
    return is_vector and comes_from(data, _is_matrix_product, _is_passed)


def _is_rounded_later(value: Value) -> bool:
    """Whether a tensor with a free length is rounded."""
    return not has_known_lengths(value) and comes_to(
        value,
        lambda op: is_qdq(op, "QuantizeLinear"),
        lambda op: op.is_type("Clip", "Relu") or is_grid_preserving(op),
    )
