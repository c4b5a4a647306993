"""Ops in fewer dimensions: those that lie side by side, and that an op treats alike, become one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from math import prod

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

from .builder import Builder, Lengths, Writer, lengths_of

Groups = Sequence[Sequence[int]]  # the axes that become one, of each dimension that is left


def elementwise(op: Op, rank: int) -> Writer | None:
    """An op on numbers of several tensors, of which each has an axis, or one number for all along it."""
    given, wanted = op.inputs, lengths_of(op.outputs[0])
    shapes = [lengths_of(value) for value in given]
    if wanted is None or None in shapes or len(wanted) <= rank:
        return None
    aligned = [(1,) * (len(wanted) - len(shape)) + shape for shape in shapes if shape is not None]
    groups = _groups([tuple(length == 1 for length in along) for along in zip(*aligned, strict=True)], wanted)
    if len(groups) > rank:
        return None

    def write(build: Builder) -> list[Value | None]:
        read = [
            _reshaped(build, value, _shape(shape, groups))
            for value, shape in zip(given, aligned, strict=True)
            if value is not None
        ]
        return [build.reshape(_made(build, op, read, _shape(wanted, groups)), wanted)]

    return write


def sliced(op: Op, rank: int) -> Writer | None:
    """A Slice, with the axes that it leaves whole side by side as one."""
    data, starts, ends, given, steps = (*op.inputs, None, None)[:5]
    axes, lengths = fixed_constant(given), lengths_of(data)
    if axes is None or lengths is None:
        return None
    cut = [int(axis) % len(lengths) for axis in axes.numpy()]

    def write(build: Builder, read: Value, groups: Groups, shape: Lengths) -> Value:
        places = build.constant(np.array([_place(groups, axis) for axis in cut], np.int64), "axes")
        return build.op("Slice", read, starts, ends, places, *([steps] if steps else []), shape=shape)

    return _around(op, rank, cut, write)


def concatenated(op: Op, rank: int) -> Writer | None:
    """A Concat, with all axes before its own as one, and all behind it."""
    wanted = lengths_of(op.outputs[0])
    shapes = [lengths_of(value) for value in op.inputs]
    if wanted is None or None in shapes or rank < 3:
        return None
    axis = op.attribute("axis", 0) % len(wanted)
    groups = _groups([one == axis for one in range(len(wanted))], wanted, {axis})

    def write(build: Builder) -> list[Value | None]:
        read = [
            _reshaped(build, value, _shape(shape, groups))
            for value, shape in zip(op.inputs, shapes, strict=True)
            if value is not None and shape is not None
        ]
        made = build.op("Concat", *read, shape=_shape(wanted, groups), axis=_place(groups, axis))
        return [build.reshape(made, wanted)]

    return write


def reduced(op: Op, rank: int) -> Writer | None:
    """A sum, mean or the like, with the axes along which it is taken, and those that stay, as one each."""
    data, *_ = read = op.inputs
    lengths, axes = lengths_of(data), attribute_of(op, "axes", read)
    if lengths is None or not isinstance(axes, tuple) or not axes:
        return None
    taken = {axis % len(lengths) for axis in axes}
    groups = _groups([axis in taken for axis in range(len(lengths))], lengths)
    wanted = lengths_of(op.outputs[0])
    if data is None or wanted is None or len(groups) > rank:
        return None
    along = [place for place, group in enumerate(groups) if group[0] in taken]
    shape = tuple(1 if place in along else n for place, n in enumerate(_shape(lengths, groups)))

    def write(build: Builder) -> list[Value | None]:
        made = _reshaped(build, data, _shape(lengths, groups))
        return [build.reshape(build.along(along, op.op_type, made, shape=shape, keepdims=1), wanted)]

    return write


def repeated(op: Op, rank: int) -> Writer | None:
    """An Expand or a Tile, with the axes along which it makes no copies side by side as one."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None:
        return None
    before = (1,) * (len(wanted) - len(lengths)) + lengths
    copied = [axis for axis in range(len(wanted)) if before[axis] != wanted[axis]]
    groups = _groups([axis if axis in copied else -1 for axis in range(len(wanted))], wanted, set(copied))
    if len(groups) > rank:
        return None
    made = _shape(wanted, groups)
    counts = [wanted[group[0]] // before[group[0]] if group[0] in copied else 1 for group in groups]

    def write(build: Builder) -> list[Value | None]:
        asked = build.constant(np.array(counts if op.is_type("Tile") else made, np.int64), "copies")
        read = _reshaped(build, data, _shape(before, groups))
        return [build.reshape(build.op(op.op_type, read, asked, shape=made), wanted)]

    return write


def _around(
    op: Op, rank: int, kept: Sequence[int], write: Callable[[Builder, Value, Groups, Lengths], Value]
) -> Writer | None:
    """An op whose result has as many axes as its data, of which some stay apart."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None:
        return None
    kinds = [axis if axis in kept else -1 for axis in range(len(lengths))]
    groups = _groups(kinds, lengths, set(kept))
    if len(groups) > rank:
        return None
    shapes = _shape(lengths, groups), _shape(wanted, groups)
    return lambda build: [
        build.reshape(write(build, build.reshape(data, shapes[0]), groups, shapes[1]), wanted)
    ]


def _groups(
    kinds: Sequence[Hashable], lengths: Lengths, kept: frozenset[int] | set[int] = frozenset()
) -> Groups:
    """Axes of one kind side by side; those of length 1 go, but for some that are ``kept``."""
    axes = [axis for axis, length in enumerate(lengths) if length != 1 or axis in kept]
    return [list(group) for _, group in groupby(axes, key=lambda axis: kinds[axis])] or [[0]]


def _shape(lengths: Lengths, groups: Groups) -> Lengths:
    return tuple(prod(lengths[axis] for axis in group) for group in groups)


def _place(groups: Groups, axis: int) -> int:
    """The dimension that an axis has become."""
    return next(place for place, group in enumerate(groups) if axis in group)


def _reshaped(build: Builder, value: Value, shape: Lengths) -> Value:
    """The numbers in another shape; a constant is another constant, and a number stays."""
    if value.original.const is None:
        return build.reshape(value, shape)
    array = value.original.const.numpy()
    is_number = array.size == 1 and array.ndim <= len(shape)
    return value if is_number else build.constant(array.reshape(shape), "reshaped")


def _made(build: Builder, op: Op, read: Sequence[Value], shape: Lengths) -> Value:
    attributes = {name: op.attribute(name) for name in op.attributes}
    return build.op(op.op_type, *read, shape=shape, **attributes)


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Where")
_LOGIC = ("And", "Or", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
WRITERS: Mapping[str, Callable[[Op, int], Writer | None]] = {
    **dict.fromkeys((*_ARITHMETIC, *_LOGIC), elementwise),
    **dict.fromkeys(_REDUCTIONS, reduced),
    **dict.fromkeys(("Expand", "Tile"), repeated),
    "Concat": concatenated,
    "Slice": sliced,
}
