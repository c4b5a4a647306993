"""An Einsum of two tensors as a product of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Writer

Length = int | str  # a free one is a name
_EQUATION = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")


def einsum(op: Op) -> Writer | None:
    """A MatMul between transpositions, where axes of both tensors are summed and none of one alone.

    Lengths may be free where no axes have to be joined to those of matrices.
    """
    found = _EQUATION.fullmatch(str(op.attribute("equation", "")).replace(" ", ""))
    read = op.graph.op_inputs(op)
    if found is None or len(read) != 2:
        return None
    terms = found.groups()
    left, right, result = map(set, terms)
    if (
        any(len(set(term)) < len(term) for term in terms)
        or (left ^ right) - result
        or not (left & right) - result
    ):
        return None
    sizes: dict[str, Length] = {}
    for term, value in zip(terms, read, strict=False):
        shape = value.type.shape if value is not None else None
        if shape is None or len(shape) != len(term):
            return None
        for axis, length in zip(term, shape, strict=True):
            if not length or sizes.setdefault(axis, length) != length:
                return None  # not known, or one of them is 1, and broadcast
    product = _Product((read[0], read[1]), terms, sizes)  # type: ignore[arg-type]
    are_known = all(isinstance(length, int) for length in sizes.values())
    return product.write if are_known or product.is_of_matrices else None


@dataclass(frozen=True)
class _Product:
    """Two factors with a letter for each axis, and the letters of the result."""

    factors: tuple[Value, Value]
    terms: Sequence[str]
    sizes: dict[str, Length]

    @cached_property
    def groups(self) -> tuple[str, str, str, str]:
        """The axes of both factors and of the result; those of the left, summed ones, those of the right."""
        left, right, result = self.terms
        both = "".join(axis for axis in left if axis in right and axis in result)
        summed = "".join(axis for axis in left if axis in right and axis not in result)
        of_left, of_right = (
            "".join(axis for axis in term if axis not in both + summed) for term in (left, right)
        )
        return both, of_left, summed, of_right

    @property
    def is_of_matrices(self) -> bool:
        """Whether the factors are matrices already, in any order of their axes."""
        return all(len(axes) == 1 for axes in self.groups[1:])

    def write(self, build: Builder) -> list[Value | None]:
        """Axes of both and of the result come first; what both have alone is summed."""
        both, of_left, summed, of_right = self.groups
        first = self.arranged(build, 0, both, of_left, summed)
        second = self.arranged(build, 1, both, summed, of_right)
        shape = (*self.lengths(both), self.joined(of_left), self.joined(of_right))
        made = build.op("MatMul", first, second, shape=shape)
        order = both + of_left + of_right
        return [self.moved(build, build.reshape(made, self.lengths(order)), order, self.terms[2])]

    def lengths(self, axes: str) -> tuple[Length, ...]:
        """Of axes."""
        return tuple(self.sizes[axis] for axis in axes)

    def joined(self, axes: str) -> Length:
        """The length of several axes as one; a free one is alone."""
        lengths = self.lengths(axes)
        return lengths[0] if len(lengths) == 1 else prod(n for n in lengths if isinstance(n, int))

    def arranged(self, build: Builder, index: int, both: str, rows: str, columns: str) -> Value:
        """A factor as matrices; of a constant, another constant."""
        factor, term = self.factors[index], self.terms[index]
        shape = (*self.lengths(both), self.joined(rows), self.joined(columns))
        order = both + rows + columns
        if factor.const is not None and (order, shape) != (term, factor.const.shape):
            array = factor.const.numpy().transpose([term.index(axis) for axis in order])
            return build.constant(np.ascontiguousarray(array.reshape(shape)), "factor")  # type: ignore[arg-type]
        return build.reshape(self.moved(build, factor, term, order), shape)

    def moved(self, build: Builder, data: Value, term: str, order: str) -> Value:
        """The data with its axes in another order."""
        if term == order:
            return data
        perm = tuple(term.index(axis) for axis in order)
        return build.op("Transpose", data, shape=self.lengths(order), perm=perm)
