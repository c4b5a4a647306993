"""Ops that only move numbers, in fewer dimensions."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from onnx import helper

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

from .builder import SLICES_BY_INPUT, Builder, Lengths, Writer, lengths_of, result_shape
from .places import counted_from_start, from_the_start, numbered


def gather(op: Op) -> Writer | None:
    """A Reshape, where all there is along the axis is taken in its order, as tensors of another shape.

    Of places that the model computes one of places that count from zero.
    """
    found = _taken(op)
    if found is None:
        return from_the_start(op)
    in_order = np.array_equal(found.indices, np.arange(found.lengths[found.axis]))
    if found.wanted == found.lengths or not in_order:
        return None
    return lambda build: [build.reshape(found.data, found.wanted)]


def gather_elements(op: Op) -> Writer | None:
    """A Gather, where the places along the axis are copies of one row, as those of chosen queries are.

    Otherwise one of places that count from zero.
    """
    return _gathered_rows(op) or from_the_start(op)


def _gathered_rows(op: Op) -> Writer | None:
    (data, places), wanted = op.inputs, lengths_of(op.outputs[0])
    lengths, rank = lengths_of(data), len(wanted or ())
    if data is None or places is None or lengths is None or wanted is None:
        return None
    axis = op.attribute("axis", 0) % rank
    maker = places.producer
    row = maker.inputs[0] if maker is not None and maker.is_type("Expand", "Tile") else places
    others = lengths[:axis] + lengths[axis + 1 :]
    if row is None or lengths_of(row) is None or prod(lengths_of(row) or ()) != wanted[axis]:
        return None
    if others != wanted[:axis] + wanted[axis + 1 :] or row.type.elem_type != places.type.elem_type:
        return None
    if (lengths_of(row) or ())[axis - rank :][:1] != (wanted[axis],):
        return None

    def write(build: Builder) -> list[Value | None]:
        counted = counted_from_start(build, build.reshape(row, (wanted[axis],)), lengths[axis])
        return [build.op("Gather", data, counted, shape=wanted, axis=axis)]

    return write


def gather_nd(op: Op) -> Writer | None:
    """A Gather of rows, the axes that places are given for made one.

    Where all there is is taken in its order, as masks of attention are, it is a Reshape.
    """
    (data, places), wanted = op.inputs, lengths_of(op.outputs[0])
    lengths, shape = lengths_of(data), lengths_of(places)
    if data is None or places is None or not lengths or not shape or wanted is None:
        return None
    first = op.attribute("batch_dims", 0)
    end = first + shape[-1]
    outer, given = lengths[first:end], fixed_constant(places)
    if given is not None and not first:
        numbers = np.moveaxis(given.numpy(), -1, 0) % np.reshape(outer, (-1, *(1,) * (len(shape) - 1)))
        if np.array_equal(np.ravel_multi_index(tuple(numbers), outer).ravel(), np.arange(prod(outer))):
            return lambda build: [build.reshape(data, wanted)]

    def write(build: Builder) -> list[Value | None]:
        rows = build.reshape(data, (prod(lengths[:end]), *lengths[end:]))
        return [build.op("Gather", rows, numbered(build, places, outer, first), shape=wanted, axis=0)]

    return write


def split(op: Op) -> Writer | None:
    """Slices of a row: one that a product makes is split into wrong numbers by the HTP."""
    data = op.inputs[0]
    lengths = lengths_of(data)
    parts = [lengths_of(value) for value in op.outputs]
    if data is None or lengths is None or None in parts or op.graph.model.opset < SLICES_BY_INPUT:
        return None
    axis = op.attribute("axis", 0) % len(lengths)
    if prod(lengths) != lengths[axis]:
        return None
    return lambda build: [*build.slices(data, [part[axis] for part in parts if part is not None], axis)]


def pad(op: Op) -> Writer | None:
    """Constants around what is no float, as a mask of words, by a Concat along each axis."""
    data, _, number, *_ = (*op.inputs, None, None)
    pads, lengths = attribute_of(op, "pads", op.inputs), lengths_of(data)
    filling, is_constant = fixed_constant(number), op.attribute("mode", "constant") == "constant"
    if data is None or data.is_float or lengths is None or not is_constant or (number and not filling):
        return None
    if not isinstance(pads, tuple) or len(pads) != 2 * len(lengths) or min(pads) < 0:
        return None
    kind = data.type.elem_type
    number_of = filling.numpy().item() if filling is not None else 0

    def write(build: Builder) -> list[Value | None]:
        made, shape = data, lengths
        for axis, (before, behind) in enumerate(zip(pads[: len(shape)], pads[len(shape) :], strict=True)):
            around = [(*shape[:axis], length, *shape[axis + 1 :]) for length in (before, behind)]
            first, last = (
                [build.constant(np.full(one, number_of, helper.tensor_dtype_to_np_dtype(kind)), "filling")]
                for one in around
            )
            parts = [*(first if before else []), made, *(last if behind else [])]
            shape = (*shape[:axis], before + shape[axis] + behind, *shape[axis + 1 :])
            made = build.concat(parts, axis, shape)
        return [made]

    return write


def triangle(op: Op) -> Writer | None:
    """A Where between the data and zero, where the lengths of its matrices and the diagonal are known.

    A product by a mask would make other numbers of infinities beyond the diagonal.
    """
    data, given = (*op.inputs, None)[:2]
    shape = data.type.shape if data is not None else None
    rows, columns = shape[-2:] if shape is not None and len(shape) > 1 else (None, None)
    diagonal = fixed_constant(given) if given is not None else None
    if data is None or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    if given is not None and diagonal is None:
        return None
    k = int(diagonal.numpy().item()) if diagonal is not None else 0
    whole = np.ones((rows, columns), bool)
    kept = np.triu(whole, k) if op.attribute("upper", 1) else np.tril(whole, k)

    def write(build: Builder) -> list[Value | None]:
        mask, zero = build.constant(kept, "kept"), build.constant(np.array(0, np.float32), "zero")
        return [build.op("Where", mask, data, zero, shape=result_shape(op))]

    return write


def reverse_sequence(op: Op) -> Writer | None:
    """A Gather of the places in the other order, where all sequences have the same constant length."""
    data, given = op.inputs
    lengths, asked = lengths_of(data), fixed_constant(given)
    ends = set(asked.numpy().tolist()) if asked is not None else set()
    if data is None or lengths is None or len(ends) != 1:
        return None
    (end,), axis = ends, op.attribute("time_axis", 0)
    places = np.arange(lengths[axis])
    places[:end] = places[:end][::-1]
    return lambda build: [
        build.op("Gather", data, build.constant(places, "places"), shape=lengths, axis=axis)
    ]


def transpose_in(op: Op, rank: int) -> Writer | None:
    """A Transpose of at most ``rank`` dimensions: those of length 1 go, those that stay together are one.

    Of more, one dimension after the other goes to its place, in a Transpose of four.
    """
    data, result = op.inputs[0], op.outputs[0]
    lengths, wanted = lengths_of(data), lengths_of(result)
    if data is None or lengths is None or wanted is None:
        return None
    shape, order = merged(lengths, op.attribute("perm", tuple(range(len(lengths)))[::-1]))
    if len(shape) > rank:
        return lambda build: [build.reshape(_moved_one_by_one(build, data, shape, order), wanted)]

    def write(build: Builder) -> list[Value | None]:
        moved = tuple(shape[axis] for axis in order)
        made = build.op("Transpose", build.reshape(data, shape), shape=moved, perm=order)
        return [build.reshape(made, wanted)]

    return write


def _moved_one_by_one(build: Builder, data: Value, lengths: Lengths, order: Lengths) -> Value:
    """The numbers in another order of axes, each of which passes those that it has to."""
    axes = list(range(len(lengths)))
    for place, axis in enumerate(order):
        now = axes.index(axis)
        if now != place:
            parts = axes[:place], axes[place:now], [axis], axes[now + 1 :]
            shape = tuple(prod(lengths[one] for one in part) for part in parts)
            moved = tuple(shape[one] for one in (0, 2, 1, 3))
            data = build.op("Transpose", build.reshape(data, shape), shape=moved, perm=(0, 2, 1, 3))
            axes.insert(place, axes.pop(now))
    return data


def merged(lengths: Lengths, order: Lengths) -> tuple[Lengths, Lengths]:
    """The fewest dimensions, and their order, with which a transposition moves all numbers alike."""
    kept = [axis for axis in range(len(lengths)) if lengths[axis] != 1]
    groups: list[list[int]] = []
    for place in (kept.index(axis) for axis in order if axis in kept):
        if groups and groups[-1][-1] + 1 == place:
            groups[-1].append(place)
        else:
            groups.append([place])
    before = sorted(groups)
    shape = tuple(prod(lengths[kept[place]] for place in group) for group in before)
    return shape or (1,), tuple(map(before.index, groups)) or (0,)


def split_in_three(op: Op) -> Writer | None:
    """A Split with all dimensions before its axis as one, and all behind it; Slices, where parts differ."""
    data = op.inputs[0]
    lengths, axis = lengths_of(data), op.attribute("axis", 0)
    results = [lengths_of(value) for value in op.outputs if value is not None]
    if data is None or lengths is None or None in results or len(results) < op.num_outputs:
        return None
    wanted = [shape for shape in results if shape is not None]
    along = [shape[axis] for shape in wanted]
    if len(set(along)) > 1 and op.graph.model.opset < SLICES_BY_INPUT:
        return None

    def write(build: Builder) -> list[Value | None]:
        rows = build.reshape(data, _in_three(lengths, axis))
        parts = build.split(rows, len(along), 1) if len(set(along)) == 1 else build.slices(rows, along, 1)
        is_read = [value is not None and value.is_read for value in op.outputs]
        return [
            build.reshape(part, shape) if read else None
            for part, shape, read in zip(parts, wanted, is_read, strict=True)
        ]

    return write


def gather_in_three(op: Op) -> Writer | None:
    """A Gather with all dimensions before its axis as one, and all behind it."""
    found = _taken(op)
    if found is None:
        return None

    def write(build: Builder) -> list[Value | None]:
        before, _, behind = shape = _in_three(found.lengths, found.axis)
        taken = build.constant(found.indices.astype(np.int64), "indices")
        rows = build.reshape(found.data, shape)
        made = build.op("Gather", rows, taken, shape=(before, found.indices.size, behind), axis=1)
        return [build.reshape(made, found.wanted)]

    return write


def reshaped(op: Op) -> Writer | None:
    """A Reshape: by itself it leaves all numbers where they are."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    if data is None or wanted is None:
        return None
    return lambda build: [build.reshape(data, wanted)]


class _Taken(NamedTuple):
    """A Gather with constant indices, which are flat, and known lengths of its data and its result."""

    data: Value
    axis: int
    indices: np.ndarray
    lengths: Lengths
    wanted: Lengths


def _taken(op: Op) -> _Taken | None:
    data, places = op.inputs
    indices = fixed_constant(places)
    lengths, wanted = lengths_of(data), lengths_of(op.outputs[0])
    if data is None or indices is None or lengths is None or wanted is None:
        return None
    return _Taken(data, op.attribute("axis", 0) % len(lengths), indices.numpy().ravel(), lengths, wanted)


def _in_three(lengths: Lengths, axis: int) -> Lengths:
    axis %= len(lengths)
    return prod(lengths[:axis]), lengths[axis], prod(lengths[axis + 1 :])
