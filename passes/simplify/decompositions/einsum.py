"""An Einsum of two tensors as a product of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Writer
from .movement import lengths_of

_EQUATION = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")


def einsum(op: Op) -> Writer | None:
    """A MatMul between transpositions, where axes of both tensors are summed and none of one alone."""
    found = _EQUATION.fullmatch(str(op.attribute("equation", "")).replace(" ", ""))
    read, wanted = op.graph.op_inputs(op), lengths_of(op.graph.op_outputs(op)[0])
    lengths = [lengths_of(value) for value in read]
    if found is None or len(read) != 2 or wanted is None or None in lengths:
        return None
    terms = found.groups()
    left, right, result = map(set, terms)
    if (
        any(len(set(term)) < len(term) for term in terms)
        or (left ^ right) - result
        or not (left & right) - result
    ):
        return None
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, lengths, strict=False):
        if shape is None or len(shape) != len(term):
            return None
        if any(sizes.setdefault(axis, length) != length for axis, length in zip(term, shape, strict=True)):
            return None  # one of them is 1, and broadcast
    return _Product((read[0], read[1]), terms, sizes).write  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Product:
    """Two factors with a letter for each axis, and the letters of the result."""

    factors: tuple[Value, Value]
    terms: Sequence[str]
    sizes: dict[str, int]

    def write(self, build: Builder) -> list[Value | None]:
        """Axes of both and of the result come first; what both have alone is summed."""
        left, right, result = self.terms
        both = "".join(axis for axis in left if axis in right and axis in result)
        summed = "".join(axis for axis in left if axis in right and axis not in result)
        of_left, of_right = (
            "".join(axis for axis in term if axis not in both + summed) for term in (left, right)
        )
        first = self.arranged(build, 0, both, of_left, summed)
        second = self.arranged(build, 1, both, summed, of_right)
        shape = (*self.lengths(both), prod(self.lengths(of_left)), prod(self.lengths(of_right)))
        made = build.op("MatMul", first, second, shape=shape)
        order = both + of_left + of_right
        return [self.moved(build, build.reshape(made, self.lengths(order)), order, result)]

    def lengths(self, axes: str) -> tuple[int, ...]:
        """Of axes."""
        return tuple(self.sizes[axis] for axis in axes)

    def arranged(self, build: Builder, index: int, both: str, rows: str, columns: str) -> Value:
        """A factor as matrices; of a constant, another constant."""
        factor, term = self.factors[index], self.terms[index]
        shape = (*self.lengths(both), prod(self.lengths(rows)), prod(self.lengths(columns)))
        order = both + rows + columns
        if factor.const is not None and (order, shape) != (term, factor.const.shape):
            array = factor.const.numpy().transpose([term.index(axis) for axis in order])
            return build.constant(np.ascontiguousarray(array.reshape(shape)), "factor")
        return build.reshape(self.moved(build, factor, term, order), shape)

    def moved(self, build: Builder, data: Value, term: str, order: str) -> Value:
        """The data with its axes in another order."""
        if term == order:
            return data
        perm = tuple(term.index(axis) for axis in order)
        return build.op("Transpose", data, shape=self.lengths(order), perm=perm)
