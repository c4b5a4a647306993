"""How the scale of each channel of its inputs becomes that of the result of an op.

Scales are told apart by numbers (see :class:`~.unions.Unions`) in an array that broadcasts against the
tensor: of the length of an axis where scales differ along it, of length 1 elsewhere. None stands for a tensor
whose scale is 1. What is here maps those of the inputs to those of the results, or to None if scales do not
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qc.ir.facts.constants import constant_numbers
from qc.ir.graph import Op
from qc.ir.value_type import Shape

Numbers = np.ndarray | None
# Elements of a tensor whose channels become those of another shape.
_LARGEST = 1 << 22
_FIRST_SPATIAL = 2


def _same(op: Op, numbers: np.ndarray) -> Numbers:
    return numbers


def _same_channels(op: Op, numbers: np.ndarray) -> Numbers:
    """Of an op that mixes what is along the axes behind the channels."""
    return numbers if all(length == 1 for length in numbers.shape[_FIRST_SPATIAL:]) else None


def _resized(op: Op, numbers: np.ndarray) -> Numbers:
    given, made = _shapes(op)
    crops = op.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    keeps = given is not None and made is not None and isinstance(given[1], int) and given[1] == made[1]
    return _same_channels(op, numbers) if keeps and not crops else None


def _clipped(op: Op, numbers: np.ndarray) -> Numbers:
    """Of a Clip that is a Relu."""
    low, high = parameter(op, 1, "min", -np.inf), parameter(op, 2, "max", np.inf)
    if low is None or high is None or low.size != 1 or high.size != 1:
        return None
    return numbers if low.item() == 0 and high.item() >= np.finfo(np.float32).max else None


def _padded(op: Op, numbers: np.ndarray) -> Numbers:
    pads, value = parameter(op, 1, "pads"), parameter(op, 2, "value", 0.0)
    axes = parameter(op, 3, "axes", range(numbers.ndim))
    puts_zeros = value is not None and not np.any(value)
    if pads is None or axes is None or (op.attribute("mode", "constant") == "constant" and not puts_zeros):
        return None
    is_padded = pads.reshape(2, -1).any(axis=0)
    return _constant_along(numbers, axes[is_padded])


def _sliced(op: Op, numbers: np.ndarray) -> Numbers:
    starts = parameter(op, 1, "starts")
    axes = parameter(op, 3, "axes", range(starts.size)) if starts is not None else None
    return _constant_along(numbers, axes) if axes is not None else None


def _reduced(op: Op, numbers: np.ndarray) -> Numbers:
    axes = parameter(op, 1, "axes", range(numbers.ndim))
    if axes is None or not axes.size or _constant_along(numbers, axes) is None:
        return None  # axes that are given, but none, can mean all
    return numbers if op.attribute("keepdims", 1) else np.squeeze(numbers, tuple(axes.tolist()))


def _constant_along(numbers: np.ndarray, axes: np.ndarray) -> Numbers:
    return numbers if all(numbers.shape[axis] == 1 for axis in axes.tolist()) else None


def _transposed(op: Op, numbers: np.ndarray) -> Numbers:
    return np.transpose(numbers, op.attribute("perm"))


def _reshaped(op: Op, numbers: np.ndarray) -> Numbers:
    given, made = _shapes(op)
    if given is None or made is None:
        return None
    behind = 1 + max((axis for axis, length in enumerate(numbers.shape) if length > 1), default=-1)
    if given[:behind] == made[:behind] and None not in given[:behind]:
        return numbers.reshape(*numbers.shape[:behind], *[1] * (len(made) - behind))
    for first in range(len(given)):
        if any(length != 1 for length in numbers.shape[:first]):
            return None
        size = _size(given[first:])
        last = next((i for i in range(len(made)) if size and _size(made[i:]) == size), None)
        if size is not None and size <= _LARGEST and last is not None:
            spread = np.broadcast_to(numbers.reshape(numbers.shape[first:]), given[first:])  # type: ignore[arg-type]
            return _compressed(spread.reshape([1] * last + list(made[last:])))  # type: ignore[arg-type]
    return None


def _compressed(numbers: np.ndarray) -> np.ndarray:
    """The same with length 1 along all axes along which nothing changes."""
    for axis in range(numbers.ndim):
        first = numbers.take([0], axis)
        if (numbers == first).all():
            numbers = first
    return numbers


ONE_INPUT: Mapping[str, Callable[[Op, np.ndarray], Numbers]] = {
    **dict.fromkeys(("Abs", "Dropout", "Identity", "LeakyRelu", "Neg", "PRelu", "Relu"), _same),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _same_channels),
    **dict.fromkeys(("LpPool", "MaxPool"), _same_channels),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), _reduced),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _reshaped),
    **dict.fromkeys(("Resize", "Upsample"), _resized),
    "Clip": _clipped,
    "Pad": _padded,
    "Slice": _sliced,
    "Transpose": _transposed,
}
"""Ops whose results scale as their first input does, with all else unchanged; for inputs above zero."""


def split(op: Op, numbers: np.ndarray) -> Sequence[Numbers]:
    """Those of each result of a Split."""
    axis = op.attribute("axis", 0) % numbers.ndim
    results = op.outputs
    if numbers.shape[axis] == 1:
        return [numbers] * len(results)
    shapes = [result.type.shape if result is not None else None for result in results]
    lengths = [shape[axis] if shape is not None else None for shape in shapes]
    known = [length for length in lengths if isinstance(length, int)]
    if len(known) < len(lengths) or sum(known) != numbers.shape[axis]:
        return [None] * len(results)
    return np.split(numbers, np.cumsum(known)[:-1], axis)


def padded_to(numbers: np.ndarray, rank: int) -> np.ndarray:
    """With axes in front, as an array of that rank."""
    return numbers.reshape([1] * (rank - numbers.ndim) + list(numbers.shape))


def parameter(op: Op, port: int, name: str, default: object = None) -> np.ndarray | None:
    """What is an attribute or a constant, with the default if it is left out; None if it is computed."""
    inputs = op.inputs
    value = inputs[port] if port < len(inputs) else None
    if value is None:
        given = op.attribute(name, default)
        return np.asarray(given) if given is not None else None
    return constant_numbers(value)


def _shapes(op: Op) -> tuple[Shape | None, Shape | None]:
    """Those of the first input and of the first result."""
    given, made = op.inputs[0], op.outputs[0]
    return given.original.type.shape if given else None, made.type.shape if made else None


def _size(lengths: Shape) -> int | None:
    known = [length for length in lengths if isinstance(length, int) and length >= 0]
    return int(np.prod(known)) if len(known) == len(lengths) else None
