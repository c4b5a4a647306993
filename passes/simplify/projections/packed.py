"""A product that makes several tensors at once, which are cut apart behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape
from qc.patterns.attributes import attribute_of


@dataclass(frozen=True)
class Packed:
    """A product whose columns are several tensors.

    Attributes:
        ops: the product and all behind it that goes with it, in their order.
        data: what is multiplied.
        weight: what it is multiplied by, a row for each feature of the data.
        bias: a number for each column; None without.
        lengths: those that the result is reshaped to, as the Reshape names them.
        axis: the one of these along which it is cut apart.
        order: that of the other axes in what is cut out.
        heads_shape: of a part in front of its transposition.
        cuts: what is cut out, and its place.
    """

    ops: tuple[Op, ...]
    data: Value
    weight: np.ndarray
    bias: np.ndarray | None
    lengths: np.ndarray
    axis: int
    order: tuple[int, ...]
    heads_shape: Shape
    cuts: dict[Value, int]

    @property
    def product(self) -> Op:
        """The product itself."""
        return self.ops[0]

    @property
    def count(self) -> int:
        """How many tensors it makes."""
        return int(self.lengths[self.axis])

    def part(self, columns: np.ndarray, place: int) -> np.ndarray:
        """Of the last axis of an array what belongs to one of the tensors."""
        lengths = _of_columns(self.lengths, columns.shape[-1]) or ()
        axis = columns.ndim - 1 + self.axis - (len(self.lengths) - len(lengths))
        apart = columns.reshape(*columns.shape[:-1], *lengths)
        return np.ascontiguousarray(apart.take(place, axis).reshape(*columns.shape[:-1], -1))


def packed(product: Op) -> Packed | None:
    """What a product makes several tensors at once in; None if something reads these as one."""
    data, right = product.inputs
    weight = fixed_constant(right)
    if data is None or weight is None or len(weight.shape) != 2:
        return None
    ops, bias = [product], None
    after = _only_reader(product)
    if after is not None and after.is_type("Add"):
        bias = _bias(after, weight.shape[1])
        ops, after = [*ops, after], _only_reader(after) if bias is not None else None
    turn = _only_reader(after) if after is not None and after.is_type("Reshape") else None
    if after is None or turn is None or not turn.is_type("Transpose"):
        return None
    heads, cut = after.outputs[0], turn.outputs[0]
    lengths, order = fixed_constant(after.inputs[1]), turn.attribute("perm")
    if heads is None or heads.type.shape is None or cut is None or lengths is None or order is None:
        return None
    given = lengths.numpy()
    found = _cuts(cut, given, order, weight.shape[1])
    if found is None:
        return None
    across, cuts, cutters = found
    axis = order[across]
    kept = tuple(one - (one > axis) for one in order if one != axis)
    shape = (*heads.type.shape[:axis], *heads.type.shape[axis + 1 :])
    ops += [after, turn, *cutters]
    return Packed(tuple(ops), data, weight.numpy(), bias, given, axis, kept, shape, cuts)


def _only_reader(op: Op) -> Op | None:
    """The op that alone reads, as data, what an op makes."""
    use = op.only_use
    return use.op if use is not None and (use.port == 0 or use.op.is_type("Add")) else None


def _bias(add: Op, columns: int) -> np.ndarray | None:
    for value in add.inputs:
        const = fixed_constant(value)
        if const is not None and const.size == columns and const.shape[-1:] == (columns,):
            return const.numpy().reshape(-1)
    return None


def _of_columns(lengths: np.ndarray, columns: int) -> tuple[int, ...] | None:
    """The last lengths, which the columns of a product are reshaped to; None if there are no such."""
    for first in reversed(range(len(lengths))):
        found = tuple(map(int, lengths[first:]))
        if min(found) > 0 and prod(found) == columns:
            return found
    return None


def _cuts(
    whole: Value, lengths: np.ndarray, order: tuple[int, ...], columns: int
) -> tuple[int, dict[Value, int], list[Op]] | None:
    """The axis along which a tensor is cut apart into parts of length 1, these, and the ops that do so."""
    parts = _of_columns(lengths, columns)
    uses = whole.uses
    if parts is None or not uses or whole.is_output:
        return None
    axes, cuts, ops = set[int](), dict[Value, int](), list[Op]()
    for use in uses:
        found = list(_cut_by(use.op)) if use.port == 0 and not use.op.subgraphs else []
        if not found:
            return None
        for axis, place, value, by in found:
            axes.add(axis)
            cuts[value] = place
            ops += [op for op in by if op not in ops]
    axis = axes.pop()
    if axes or order[axis] < len(order) - len(parts):
        return None
    count = int(lengths[order[axis]])
    places = {value: place + count if place < 0 else place for value, place in cuts.items()}
    return (axis, places, ops) if all(0 <= place < count for place in places.values()) else None


def _cut_by(op: Op) -> Iterator[tuple[int, int, Value, list[Op]]]:
    """Each part that an op cuts out: the axis, its place, the part without the axis, and the ops."""
    inputs, results = op.inputs, op.outputs
    if op.is_type("Gather") and results[0] is not None and inputs[0] is not None:
        index, rank = fixed_constant(inputs[1]), len(inputs[0].type.shape or ())
        if index is not None and not index.shape and rank:
            yield op.attribute("axis", 0) % rank, int(index.numpy()), results[0], [op]
        return
    places = list(range(len(results)))
    if op.is_type("Slice"):
        axes, starts = (attribute_of(op, name, inputs) for name in ("axes", "starts"))
        if not all(isinstance(one, tuple) and len(one) == 1 for one in (axes, starts)):
            return
        axis, places = axes[0], [int(starts[0])]
    elif op.is_type("Split") and inputs[0] is not None and inputs[0].type.shape:
        axis = op.attribute("axis", 0) % len(inputs[0].type.shape)
    else:
        return
    squeezed = [_squeezed(part, axis) for part in results]
    if None in squeezed:
        return
    for place, one in zip(places, squeezed, strict=True):
        if one is not None:
            yield axis, place, one[0], [op, one[1]]


def _squeezed(part: Value | None, axis: int) -> tuple[Value, Op] | None:
    """A part of length 1 without the axis it was cut along, and what takes the axis away."""
    use = part.only_use if part is not None else None
    if part is None or use is None or part.type.shape is None:
        return None
    op = use.op
    if part.type.shape[axis] != 1 or use.port != 0 or not op.is_type("Squeeze"):
        return None
    result = op.outputs[0]
    return (result, op) if result is not None and attribute_of(op, "axes", op.inputs) == (axis,) else None
