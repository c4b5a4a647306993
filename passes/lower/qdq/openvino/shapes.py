"""Keeps OpenVINO from reading a length that is free where it computes with codes.

OpenVINO 2026.4 takes every single length of a shape from the first tensor that it knows to have it. That may
be a convolution of codes in front of its bias, which two ops read then and whose scales it applies twice:
all that follows is wrong. So it does where an Expand, a Range or the like makes a tensor of as many elements
as a batch has, as the first state of an LSTM that was written out or a row for each element. One length as
the sum over all of a shape, times 1 for this and 0 for the others, it leaves where it is.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from ....simplify.constants.told import told_axes
from ..neighbours import comes_to

_FILLS = ("ConstantOfShape", "Expand", "Range", "Tile")


def keep_shapes(model: Model, rewriter: Rewriter) -> None:
    """Writes a single free length that decides how many elements a tensor gets as a sum over the shape."""
    for op in [op for op in model.ops() if op.is_type("Gather", "Shape", "Slice")]:
        found, (result, *_) = _single_length(op), op.outputs
        if found is not None and result is not None and comes_to(result, _is_fill, _makes_no_floats):
            _write_as_sum(rewriter, op, *found)


def _single_length(op: Op) -> tuple[Value, np.ndarray] | None:
    """The tensor and axis of the free length that an op tells of; None if it tells of more, or of none."""
    found, (result, *_) = told_axes(op), op.outputs
    if found is None or result is None or result.type.elem_type not in (0, TensorProto.INT64):
        return None
    data, axis = found
    shape = data.original.type.shape or ()
    is_single = axis.size == 1 and len(shape) > 1 and axis.ndim < 2
    return found if is_single and not isinstance(shape[axis.item()], int) else None


def _is_fill(op: Op) -> bool:
    return op.is_type(*_FILLS)


def _makes_no_floats(op: Op) -> bool:
    return not any(result is not None and result.is_float for result in op.outputs)


def _write_as_sum(rewriter: Rewriter, op: Op, data: Value, axis: np.ndarray) -> None:
    graph, (result, *_) = op.graph, op.outputs
    assert result is not None
    axes = len(data.original.type.shape or ())
    of_shape = ValueType(TensorProto.INT64, (axes,))
    with rewriter.action("keep shapes", op):
        shape, lengths, length = (
            rewriter.add_value(graph, f"{result.name}_{name}", kind)
            for name, kind in (("shape", of_shape), ("lengths", of_shape), ("length", result.type))
        )
        chosen = rewriter.add_constant(
            graph, np.eye(axes, dtype=np.int64)[axis.item()], f"{result.name}_axis"
        )
        rewriter.add_op(graph, "Shape", (data,), [shape])
        rewriter.add_op(graph, "Mul", (shape, chosen), [lengths])
        rewriter.add_op(graph, "ReduceSum", (lengths,), [length], {"keepdims": axis.ndim})
        rewriter.replace_uses(result, length, outputs=False)
        rewriter.erase_unread(result)
