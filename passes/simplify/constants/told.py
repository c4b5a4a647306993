"""What ops tell of the lengths of a tensor, where these are known."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

_MOST_STEPS = 16
_EXACT = (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.DOUBLE)
_LARGEST = 2**24  # that all of these types hold
_PASSES_ON = ("Cast", "Gather", "Identity", "Slice")  # what a Shape tells, or a part of it


def tells_of_shape(op: Op) -> bool:
    """Whether an op may be one for :func:`told_of_shape`."""
    return op.is_type("Shape", "Size", *_PASSES_ON)


def told_of_shape(op: Op) -> np.ndarray | None:
    """What an op tells of a shape; None if it tells nothing of one, or of lengths that are not known.

    With a free batch, as most models have, a Gather or Slice of a Shape often tells of other lengths alone.
    """
    result, told = op.outputs[0], _size(op) if op.is_type("Size") else _lengths(op)
    if result is None or told is None:
        return None
    kind = result.type.elem_type
    return told.astype(helper.tensor_dtype_to_np_dtype(kind) if kind else np.int64)


def told_axes(op: Op) -> tuple[Value, np.ndarray] | None:
    """The tensor that an op tells the lengths of, and of which axes; None if it tells of none, or of any.

    Args:
        op: a Shape, or an op that passes on what one tells. The axes have the shape of its result.
    """
    steps, told = list[Op](), op if op.num_inputs else None
    while told is not None and told.is_type(*_PASSES_ON):
        if len(steps) == _MOST_STEPS or (told.is_type("Cast") and told.attribute("to") not in _EXACT):
            return None
        steps.append(told)
        read = told.inputs[0]
        told = read.producer if read is not None else None
    data = told.inputs[0] if told is not None and told.is_type("Shape") else None
    if told is None or data is None or data.original.type.shape is None:
        return None
    first, last = (told.attributes[name].i if name in told.attributes else None for name in ("start", "end"))
    axes = np.arange(len(data.original.type.shape))[first:last]
    for step in reversed(steps):
        if step.is_type("Gather", "Slice"):
            places = _places(step, len(axes)) if axes.ndim == 1 else None
            if places is None:
                return None
            axes = np.asarray(axes[places])
    return data, axes


def _lengths(op: Op) -> np.ndarray | None:
    """The lengths that an op tells of, int64; None if it tells of none, or one is free."""
    found = told_axes(op)
    shape = _fixed_shape(found[0], found[1]) if found is not None else None
    is_exact = shape is not None and (op.is_type("Shape") or not (shape > _LARGEST).any())
    return shape if is_exact else None


def _size(op: Op) -> np.ndarray | None:
    (data,) = op.inputs
    known = data.original.type.shape if data is not None else None
    shape = _fixed_shape(data, np.arange(len(known))) if data is not None and known is not None else None
    return np.array(prod(shape.tolist()), np.int64) if shape is not None else None


def _fixed_shape(data: Value, axes: np.ndarray) -> np.ndarray | None:
    """The lengths of a tensor along some axes; None if one is free."""
    shape = data.original.type.shape or ()
    lengths = [shape[axis] for axis in axes.ravel().tolist()]
    if not all(isinstance(length, int) for length in lengths):
        return None
    return np.array(lengths, np.int64).reshape(axes.shape)


def _places(op: Op, count: int) -> np.ndarray | None:
    """The places that a Gather or Slice takes of a vector; None if data decides about them."""
    inputs, places = op.inputs, np.arange(count)
    if op.is_type("Gather"):
        data = fixed_constant(inputs[1])
        taken = data.numpy() if data is not None else None
        is_within = taken is not None and bool(((-count <= taken) & (taken < count)).all())
        return places[taken] if is_within else None
    bounds = [attribute_of(op, name, inputs) for name in ("starts", "ends", "steps")]
    if not all(isinstance(bound, tuple) and len(bound) == 1 for bound in bounds):
        return None
    return places[slice(*(bound[0] for bound in bounds))]
