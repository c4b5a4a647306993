"""Sums and means of codes as a device computes them: what one code is worth, and by which arithmetic."""

from __future__ import annotations

import math

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op
from qc.ir.quant.device_arithmetic import Arithmetic

# The device has four dimensions, the middle two of which its pooling sums up.
_DIMENSIONS, _POOLED = 4, {1, 2}


def summed(op: Op, arithmetic: Arithmetic) -> tuple[Arithmetic, np.ndarray] | None:
    """How sums of codes become codes, and what one is worth in them as part of a step of the input.

    Args:
        op: one that sums up, or that only rounds its input, of which one is worth a step.
        arithmetic: that of its type.

    Returns:
        None where it is not known.
    """
    is_global = op.op_type == "GlobalAveragePool"
    if not is_global and arithmetic is not Arithmetic.REDUCED:
        return arithmetic, _share(1)
    lengths = _lengths(op, 2 if is_global else 0)
    if lengths is None:
        return None
    if is_global:
        return arithmetic, _share(math.prod(lengths))
    axes = _reduced_axes(op, len(lengths))
    return None if axes is None else _reduction(lengths, axes, op.op_type == "ReduceMean")


def _reduction(lengths: list[int], axes: set[int], is_mean: bool) -> tuple[Arithmetic, np.ndarray] | None:
    """A mean of all that a pooling sums up is one; a sum along the first of four dimensions is not known."""
    missing = max(_DIMENSIONS - len(lengths), 0)
    reduced = {axis + missing for axis in axes if lengths[axis] > 1}
    kept = {axis + missing for axis, length in enumerate(lengths) if axis not in axes and length > 1}
    if 0 in reduced:
        return None
    pooled = is_mean and len(lengths) <= _DIMENSIONS and reduced <= _POOLED and not kept & _POOLED
    share = _share(math.prod(lengths[axis] for axis in axes)) if is_mean else _share(1)
    return (Arithmetic.CODES if pooled else Arithmetic.REDUCED), share


def _reduced_axes(op: Op, rank: int) -> set[int] | None:
    """The dimensions that a sum or a mean is along, None if they are not constant."""
    given = [*op.inputs, None][1]
    axes = op.attribute("axes", [])
    if given is not None:
        data = constant_data(given)
        if data is None:
            return None
        axes = data.numpy().ravel().tolist()
    if not axes:
        return None if op.attribute("noop_with_empty_axes", 0) else set(range(rank))
    return {int(axis) % rank for axis in axes}


def _lengths(op: Op, first: int) -> list[int] | None:
    """The lengths of the input from a dimension on, None if they are not known."""
    x = op.inputs[0]
    shape = x.type.shape if x is not None else None
    lengths = [length for length in (shape or ())[first:] if isinstance(length, int)]
    return lengths if shape is not None and len(lengths) == len(shape[first:]) else None


def _share(count: int) -> np.ndarray:
    return np.asarray(np.float32(1) / np.float32(count))
