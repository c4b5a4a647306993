"""Keeps a product apart from what OpenVINO would compute with it in wrong numbers, or refuse.

A LeakyRelu of slope 1 changes no number, becomes part of the product when the model is loaded, and takes no
time. OpenVINO 2026.4 needs it

* in a chain of products with few rows, which it computes as one kernel: behind one without a bias that is
  rounded, numbers are random;
* behind a product to whose result axes of length 1 are appended, or which is pooled or resized: it moves the
  scales of channels across that, and to the second axis from the last, or ends there;
* behind a product without a bias that several ops read, where a length is free: for some it scales it twice;
* between a convolution of 1 x 1 with strides and a Transpose, which it takes for one to channels last;
* between a Concat and the rounding of its result, which it moves to what is joined: it refuses zero points
  that it then has for each row of what a weight is multiplied by;
* and if a product of data is joined for a convolution, whose scales it then mistakes;
* behind an Expand of a constant to two axes that is joined: it rounds the constant to other codes.
"""

from __future__ import annotations

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import bias_port, is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape

from ..neighbours import (
    FOLDED,
    comes_from,
    comes_to,
    end_of_product,
    has_known_lengths,
    moves_or_keeps_shape,
    only_reader,
    stored_codes,
)

_NORMS = ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization")
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Resize")


def result_to_keep_apart(op: Op) -> Value | None:
    """The tensor of a product behind which the LeakyRelu stands; None if it needs none.

    Args:
        op: a Conv, ConvTranspose, Gemm or MatMul of codes.
    """
    result, end = op.outputs[0], end_of_product(op)
    if _is_read_by_several(op) and not has_known_lengths(result):
        return result
    if op.is_type("Conv"):
        return end if _is_strided_point(op) and _is_transposed(end) else None
    if not op.is_type("Gemm", "MatMul"):
        return None
    return result if _is_chained(op) else end if _is_moved_along(end) else None


def joined_to_keep_apart(op: Op) -> Value | None:
    """What a Concat joins to rows of data that a weight multiplies once it is rounded; None if it does not.

    Rows are along another axis than the last, or along the last one in front of a Transpose. Of columns it
    is an Expand of a constant; for a convolution, what is joined to a product of data.
    """
    (result, *_) = op.outputs
    if result is None or not result.is_float:
        return None
    expanded = next(filter(_is_expanded_row, op.inputs), None)
    if expanded is not None:
        return expanded
    if any(map(_is_product_of_data, op.inputs)) and comes_to(result, _convolves, _lets_rounding_pass):
        return result
    is_last = op.attribute("axis") in (-1, len(result.type.shape or ()) - 1)
    goal = _turns_for_weight if is_last else _multiplies_by_stored_weight
    return result if comes_to(result, goal, _lets_rounding_pass) else None


def _is_expanded_row(value: Value | None) -> bool:
    """Whether an Expand makes a tensor of two axes of a constant, be it in front of ops that only move it."""
    if value is None or value.type.rank != 2:
        return False
    return comes_from(value, _expands_constant, is_grid_preserving)


def _is_product_of_data(value: Value | None) -> bool:
    return value is not None and comes_from(value, _multiplies_data, _lets_rounding_pass)


def _multiplies_data(op: Op) -> bool:
    return op.is_type("MatMul") and not _is_by_stored_weight(op)


def _convolves(op: Op) -> bool:
    return op.is_type("Conv", "ConvTranspose")


def _expands_constant(op: Op) -> bool:
    data = op.inputs[0] if op.is_type("Expand") else None
    return data is not None and constant_numbers(data) is not None


def _turns_for_weight(op: Op) -> bool:
    (result, *_) = op.outputs
    if result is None or not op.is_type("Transpose"):
        return False
    return comes_to(result, _multiplies_by_stored_weight, _lets_rounding_pass)


def _lets_rounding_pass(op: Op) -> bool:
    is_rounding = is_qdq(op, "QuantizeLinear") or is_qdq(op, "DequantizeLinear")
    return is_rounding or is_grid_preserving(op) or op.is_type("Clip", "Relu", *FOLDED)


def _is_chained(op: Op) -> bool:
    """Whether a product by a weight is rounded for another one, and a factor is the last to come before that.

    That is one by a constant, or the scale of the product where it has no bias. Relu, Clip and what adds a
    single number let it pass.
    """
    if not _is_by_stored_weight(op):
        return False
    (value, *_) = op.outputs
    is_scaled = not _has_bias(op)
    while value is not None and (reader := only_reader(value)) is not None:
        if is_qdq(reader, "QuantizeLinear"):
            return is_scaled and comes_to(value, _multiplies_by_stored_weight, moves_or_keeps_shape)
        if not (reader.is_type("Relu", "Clip") or is_grid_preserving(reader) or _adds_number(reader)):
            is_scaled = reader.is_type("Div", "Mul", "Neg")
        value = reader.outputs[0]
    return False


def _is_read_by_several(op: Op) -> bool:
    """Whether several ops, or one that becomes several, read a product without a bias, be it moved before."""
    (value, *_) = op.outputs
    while value is not None and (reader := only_reader(value)) is not None and is_grid_preserving(reader):
        value = reader.outputs[0]
    readers = [use.op for use in value.uses] if value is not None else []
    is_several = len(readers) > 1 or any(reader.is_type(*_NORMS) for reader in readers)
    return is_several and not _has_bias(op)


def _adds_number(op: Op) -> bool:
    addends = map(constant_numbers, op.inputs)
    return op.is_type("Add", "Sub") and any(addend is not None and addend.size == 1 for addend in addends)


def _has_bias(op: Op) -> bool:
    """Whether something is added: OpenVINO takes a bias of zeros for none."""
    port = bias_port(op)
    bias = op.inputs[port] if port is not None and port < op.num_inputs else None
    numbers = constant_numbers(bias)
    return bias is not None and (numbers is None or bool(numbers.any()))


def _multiplies_by_stored_weight(op: Op) -> bool:
    return op.is_type("Gemm", "MatMul") and _is_by_stored_weight(op)


def _is_by_stored_weight(op: Op) -> bool:
    weight = op.inputs[1]
    return weight is not None and stored_codes(weight) is not None


def _is_moved_along(value: Value) -> bool:
    """Whether a tensor is pooled or resized, or gets axes of length 1 behind its own."""
    shape = value.type.shape or ()

    def moves(op: Op) -> bool:
        return is_grid_preserving(op) or op.is_type("Neg", "Pad")

    def is_along(op: Op) -> bool:
        made = [result.type.shape or () for result in op.outputs if result is not None]
        return op.is_type(*_POOLS) or (moves(op) and any(_appends_ones(shape, longer) for longer in made))

    return bool(shape) and comes_to(value, is_along, moves)


def _appends_ones(shape: Shape, longer: Shape) -> bool:
    return longer[: len(shape)] == shape and set(longer[len(shape) :]) == {1}


def _is_strided_point(op: Op) -> bool:
    """Whether a convolution has a kernel of one element, and strides."""
    weight = op.inputs[1]
    kernel = (weight.type.shape or ())[2:] if weight is not None else ()
    return set(kernel) == {1} and set(op.attribute("strides", [1])) != {1}


def _is_transposed(value: Value) -> bool:
    return any(use.op.is_type("Transpose") for use in value.uses)
