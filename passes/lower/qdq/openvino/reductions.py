"""Keeps reductions apart from what OpenVINO would make of them in wrong numbers.

OpenVINO 2026.4 makes one kernel of ReduceMax, elementwise functions behind it and the rounding of those. It
begins with the least number of the codes that it writes, 0 of unsigned ones, so that no maximum is less;
ReduceMin, with the largest. A mean over the axes that are of length 1 then, which is exact, keeps them apart.

Codes, and what products of codes make, it scales behind reductions of them, which is wrong with three axes
if there are several elements in the batch. A Max with the least number has it scale them before,
also in front of an average that counts zeros around its data, for which it takes the code 0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import helper

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from ..neighbours import (
    FOLDED,
    PRODUCTS,
    comes_from,
    comes_to,
    dequantize_behind,
    moves_or_keeps_shape,
    only_reader,
)

_ATTRIBUTES = ("axes", "keepdims", "noop_with_empty_axes")
_MEANS = {"GlobalMaxPool": "GlobalAveragePool", "ReduceMax": "ReduceMean", "ReduceMin": "ReduceMean"}
_REDUCTIONS = (*_MEANS, "GlobalAveragePool", "ReduceMean", "ReduceSum")
# Scales move across these, and across what only moves numbers.
_PASSED = (*FOLDED, "AveragePool", "Clip", "LeakyRelu", "MaxPool", "PRelu", "Relu")


def keep_reductions(model: Model, rewriter: Rewriter) -> None:
    """Puts a mean behind maxima of which something is rounded, and a Max between scales and reductions."""
    ops = model.ops()
    scaled = [(op, source) for op in ops if (source := _scaled_source(op)) is not None]
    rounded = [(op, result) for op in ops if (result := _rounded_maximum(op)) is not None]
    for op, source in scaled:
        _put_maximum_in_front(rewriter, op, source)
    for op, result in rounded:
        _put_mean_behind(rewriter, op, result)


def unkeep_reductions(model: Model, rewriter: Rewriter) -> None:
    """Takes such means and maxima away again."""
    for op in [op for op in model.ops() if op.is_type("Max", *_MEANS.values())]:
        (source, *_), (result, *_) = op.inputs, op.outputs
        before = source.producer if source is not None else None
        if source is None or result is None or before is None or not result.is_float:
            continue
        is_mean = _is_mean_of_one(op, before)
        if not is_mean and not _is_maximum_for_reductions(op, result):
            continue
        with rewriter.action("unkeep reductions", op):
            rewriter.replace_uses(result, source)
            if is_mean and source.name == f"{result.name}_kept":
                rewriter.swap_names(source, result)
            rewriter.erase_op(op)
            if is_mean:
                rewriter.set_attribute(before, "keepdims", op.attribute("keepdims"))
                rewriter.set_type(source, result.type)


def _is_mean_of_one(mean: Op, before: Op) -> bool:
    """Whether a mean is over the axes of which nothing but a maximum or minimum is left, for it alone."""
    if not before.is_type(*_MEANS) or _MEANS[before.op_type] != mean.op_type:
        return False
    (source, *axes), (_, *others) = mean.inputs, before.inputs
    same_axes = axes == others and mean.attribute("axes") == before.attribute("axes")
    return only_reader(source) is mean and same_axes and before.attribute("keepdims", 1) == 1


def _scaled_source(op: Op) -> Value | None:
    """What a reduction or average reads, if scales must not move behind it."""
    source = op.inputs[0] if op.is_type("AveragePool", *_REDUCTIONS) else None
    if source is None or not source.is_float:
        return None
    if op.is_type("AveragePool"):
        return source if _counts_zeros_among_codes(op, source) else None
    return source if _may_be_of_several(source) and _is_scaled(source) else None


def _rounded_maximum(op: Op) -> Value | None:
    """The result of a reduction to a maximum or minimum, if something of it is rounded."""
    result = op.outputs[0] if op.is_type(*_MEANS) else None
    return result if result is not None and result.is_float and _is_rounded(result) else None


def _counts_zeros_among_codes(op: Op, source: Value) -> bool:
    """Whether an average counts the zeros around codes, of which 0 is not the zero point."""
    counts = op.attribute("count_include_pad", 0) and any(op.attribute("pads", ()))
    dequantize = dequantize_behind(source) if counts else None
    zero_point = dequantize.inputs[2:] if dequantize is not None else []
    numbers = constant_numbers(zero_point[0]) if zero_point else None
    return numbers is not None and bool(numbers.any())


def _may_be_of_several(value: Value) -> bool:
    """Whether a tensor has three axes, and may have more than one element in its batch."""
    shape = value.type.shape
    return shape is None or (len(shape) == 3 and shape[0] != 1)


def _is_scaled(value: Value) -> bool:
    """Whether a tensor is of codes, or of a product."""
    return comes_from(
        value,
        lambda op: is_qdq(op, "DequantizeLinear") or op.is_type(*PRODUCTS),
        lambda op: is_grid_preserving(op) or op.is_type(*_PASSED),
    )


def _put_maximum_in_front(rewriter: Rewriter, op: Op, source: Value) -> None:
    graph = op.graph
    least = rewriter.add_constant(graph, _least(source), f"{source.name}_least")
    kept = rewriter.add_value(graph, f"{source.name}_kept", source.type)
    rewriter.add_op(graph, "Max", (source, least), [kept])
    rewriter.set_input(op, 0, kept)


def _is_maximum_for_reductions(op: Op, result: Value) -> bool:
    """Whether an op is the maximum of a tensor and the least number, and reductions alone read it."""
    readers = [use.op for use in result.uses]
    is_reduced = all(reader.is_type("AveragePool", *_REDUCTIONS) for reader in readers)
    if not op.is_type("Max") or op.num_inputs != 2 or not is_reduced or result.is_output:
        return False
    numbers = constant_numbers(op.inputs[1])
    return numbers is not None and numbers.ndim == 0 and bool(numbers == _least(result))


def _least(value: Value) -> np.ndarray:
    """The least finite number of the type of a tensor, without axes."""
    dtype = helper.tensor_dtype_to_np_dtype(value.type.elem_type)
    return np.array(ml_dtypes.finfo(dtype).min, dtype)


def _is_rounded(value: Value) -> bool:
    return comes_to(value, lambda op: is_qdq(op, "QuantizeLinear"), moves_or_keeps_shape)


def _put_mean_behind(rewriter: Rewriter, op: Op, result: Value) -> None:
    graph, readers = op.graph, set(result.uses)
    (_, *axes) = op.inputs
    kept = rewriter.add_value(graph, f"{result.name}_kept", result.type)
    attributes = {name: op.attribute(name) for name in _ATTRIBUTES}
    rewriter.add_op(graph, _MEANS[op.op_type], (result, *axes), [kept], attributes)
    rewriter.replace_uses(result, kept, where=readers.__contains__)
    if op.attribute("keepdims", 1) != 1:
        rewriter.set_attribute(op, "keepdims", 1)
        rewriter.set_type(result, ValueType(result.type.elem_type))
        rewriter.swap_names(result, kept)  # the model may declare the shape of what had the name
