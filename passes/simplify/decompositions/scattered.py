"""A ScatterND into what lies together as a Concat with what is around it, and one of rows by elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of
from .places import counted_from_start

_OLDEST_OPSET = 11  # which has all ops that are written
Box = Sequence[tuple[int, int]]  # along each of the first axes, the first place and the one behind the last


def scattered(op: Op) -> Writer | None:
    """Slices of the data around what is written into it, as ``x[..., 1:3] = y`` is exported, and a Concat.

    Rows at places that are data, as a static cache of keys has them, become a ScatterElements.
    """
    data, places, updates = op.inputs
    indices, lengths, given = fixed_constant(places), lengths_of(data), lengths_of(updates)
    if data is None or places is None or updates is None or lengths is None or given is None:
        return None
    if op.attribute("reduction", "none") != "none" or op.graph.model.opset < _OLDEST_OPSET:
        return None
    if indices is None:
        return _by_elements(data, places, updates)
    box = _box(indices.numpy(), lengths)
    if box is None:
        return None
    shape = (*(end - begin for begin, end in box), *lengths[len(box) :])
    return lambda build: [_put(build, data, build.reshape(updates, shape), box, 0)]


def _by_elements(data: Value, places: Value, updates: Value) -> Writer | None:
    """A ScatterElements whose places are those of rows, each as often as a row is long."""
    rows, lengths = lengths_of(places), lengths_of(data) or ()
    if rows is None or rows[1:] != (1,):
        return None
    row = prod(lengths[1:])

    def write(build: Builder) -> list[Value | None]:
        shape = build.shape((rows[0], row))
        counted = counted_from_start(build, places, lengths[0])
        copies = build.op("Expand", counted, shape, shape=(rows[0], row), type=places.type.elem_type)
        flat, written = build.reshape(data, (lengths[0], row)), build.reshape(updates, (rows[0], row))
        made = build.op("ScatterElements", flat, copies, written, shape=(lengths[0], row), axis=0)
        return [build.reshape(made, lengths)]

    return write


def _box(indices: np.ndarray, lengths: Lengths) -> Box | None:
    """The places of a box, if these are all and in their order; negative ones count from the end."""
    known = lengths[: indices.shape[-1]]
    rows = indices.reshape(-1, len(known))
    rows = np.where(rows < 0, rows + np.array(known, rows.dtype), rows)
    begins, ends = rows.min(axis=0).tolist(), (rows.max(axis=0) + 1).tolist()
    box = list(zip(begins, ends, strict=True))
    if prod(end - begin for begin, end in box) != len(rows):
        return None
    grid = np.stack(np.meshgrid(*(np.arange(*ends) for ends in box), indexing="ij"), axis=-1)
    return box if np.array_equal(grid.reshape(rows.shape), rows) else None


def _put(build: Builder, data: Value, updates: Value, box: Box, axis: int) -> Value:
    """The data with updates in the box, which is all of the axes before ``axis``."""
    shape = lengths_of(data)
    assert shape is not None
    axis = next((one for one in range(axis, len(box)) if box[one] != (0, shape[one])), len(box))
    if axis == len(box):
        return updates
    begin, end = box[axis]
    is_last = all(box[one] == (0, shape[one]) for one in range(axis + 1, len(box)))
    within = updates if is_last else _put(build, build.slice(data, axis, begin, end), updates, box, axis + 1)
    before = [build.slice(data, axis, 0, begin)] if begin else []
    behind = [build.slice(data, axis, end, shape[axis])] if end < shape[axis] else []
    return build.concat([*before, within, *behind], axis, shape)
