"""What ops tell of the lengths of a tensor, where these are known."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, helper

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

_FREE = -1
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
    lengths, result = _lengths(op), op.graph.op_outputs(op)[0]
    if lengths is None or result is None or (lengths == _FREE).any():
        return None
    if op.is_type("Size"):
        return np.array(prod(lengths.tolist()), np.int64)
    kind = result.type.elem_type
    return lengths.astype(helper.tensor_dtype_to_np_dtype(kind) if kind else np.int64)


def _lengths(op: Op) -> np.ndarray | None:
    """The lengths that an op tells of, int64, or _FREE for those that are; None if it tells of none."""
    steps, told = list[Op](), op if op.num_inputs else None
    while told is not None and told.is_type(*_PASSES_ON):
        if len(steps) == _MOST_STEPS or (told.is_type("Cast") and told.attribute("to") not in _EXACT):
            return None
        steps.append(told)
        read = told.graph.op_inputs(told)[0]
        told = told.graph.producer(read) if read is not None else None
    is_told = told is not None and (told.is_type("Shape") or (told.is_type("Size") and not steps))
    found = _shape(told, told.graph.op_inputs(told)[0]) if told is not None and is_told else None
    if found is None or (steps and (found > _LARGEST).any()):
        return None
    for step in reversed(steps):
        if step.is_type("Gather", "Slice"):
            places = _places(step, len(found)) if found.ndim == 1 else None
            if places is None:
                return None
            found = np.asarray(found[places])
    return found


def _shape(op: Op, read: Value | None) -> np.ndarray | None:
    shape = read.original.type.shape if read is not None else None
    if shape is None:
        return None
    first, last = (op.attributes[name].i if name in op.attributes else None for name in ("start", "end"))
    lengths = [length if isinstance(length, int) else _FREE for length in shape[first:last]]
    return np.array(lengths, np.int64)


def _places(op: Op, count: int) -> np.ndarray | None:
    """The places that a Gather or Slice takes of a vector; None if data decides about them."""
    inputs, places = op.graph.op_inputs(op), np.arange(count)
    if op.is_type("Gather"):
        data = fixed_constant(inputs[1])
        taken = data.numpy() if data is not None else None
        is_within = taken is not None and bool(((-count <= taken) & (taken < count)).all())
        return places[taken] if is_within else None
    bounds = [attribute_of(op, name, inputs) for name in ("starts", "ends", "steps")]
    if not all(isinstance(bound, tuple) and len(bound) == 1 for bound in bounds):
        return None
    return places[slice(*(bound[0] for bound in bounds))]
