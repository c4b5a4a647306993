"""An Einsum of tensors as products of matrices, and one of a single tensor as a Transpose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_letters

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Writer, lengths_of

Length = int | str  # a free one is a name
_TWO = 2
_OTHERS = "..."  # axes without letters
_ORDER = re.compile(r"([a-zA-Z]+)->([a-zA-Z]+)")


def einsum(op: Op) -> Writer | None:
    """A MatMul between transpositions, where axes of both tensors are summed and none of one alone; of more
    tensors one after the other.

    Lengths may be free where no axes have to be joined to those of matrices, or where the second tensor is
    one matrix and those of the first alone stay apart, as in the projections of Keras' attention. One of a
    single tensor, which puts pixels from patches together, is a Transpose if it sums nothing.
    """
    equation, read = str(op.attribute("equation", "")).replace(" ", ""), op.inputs
    order = _ORDER.fullmatch(equation)
    if order is not None and len(read) == 1:
        return _in_order(read[0], *order.groups())
    if order is None and len(read) > _TWO:
        return _chain(equation, read)
    terms = _terms(equation, read)
    product = _product(read, terms) if terms is not None else None
    if product is None:
        return None
    are_known = all(isinstance(length, int) for length in product.sizes.values())
    if not are_known and product.has_one_matrix:
        return product.write_by_matrix
    return product.write if are_known or product.is_of_matrices else None


def _product(read: Sequence[Value | None], terms: Sequence[str]) -> _Product | None:
    """The product of two factors, with the letters of both and of the result; None if it is none."""
    if not _is_product(terms):
        return None
    left, right, result = map(set, terms)
    sizes: dict[str, Length] = {}
    for term, value in zip(terms, read, strict=False):
        shape = value.type.shape if value is not None else None
        if shape is None or len(shape) != len(term):
            return None
        is_matrix = value is not None and value.const is not None and not left & right & result
        for axis, length in zip(term, shape, strict=True):
            known = sizes.setdefault(axis, length) if length else None
            if is_matrix and isinstance(known, str) and isinstance(length, int) and length > 1:
                sizes[axis] = length  # the length of data that a weight is multiplied by
            elif known is None or known != length:
                return None  # not known, or one of them is 1, and broadcast
    return _Product((read[0], read[1]), terms, sizes)  # type: ignore[arg-type]


def _is_product(terms: Sequence[str]) -> bool:
    """Whether axes of both factors are summed, none of one alone, and none stands twice in a term."""
    left, right, result = map(set, terms)
    repeats = any(len(set(term)) < len(term) for term in terms)
    return not repeats and not (left ^ right) - result and bool((left & right) - result)


def _chain(equation: str, read: Sequence[Value | None]) -> Writer | None:
    """The product of the first two factors times the third, and so on; of known lengths only."""
    factors, _, result = equation.partition("->")
    terms = factors.split(",")
    shapes = [lengths_of(value) or () for value in read]
    if len(terms) != len(read) or not all(term.isalpha() for term in (*terms, result)):
        return None
    if [*map(len, terms)] != [*map(len, shapes)]:
        return None
    pairs = {
        pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True)
    }
    sizes, steps = dict(pairs), list(_steps(terms, result))
    if len(sizes) < len(pairs) or not all(map(_is_product, steps)):
        return None

    def write(build: Builder) -> list[Value | None]:
        (made, *others) = read
        for step, factor in zip(steps, others, strict=True):
            (made,) = _Product((made, factor), step, sizes).write(build)  # type: ignore[arg-type]
        return [made]

    return write


def _steps(terms: Sequence[str], result: str) -> Iterator[tuple[str, str, str]]:
    """The letters of each product: what it makes has those that are needed behind it."""
    left, *others = terms
    for index, right in enumerate(others):
        needed = set(result).union(*others[index + 1 :])
        made = "".join(dict.fromkeys(axis for axis in left + right if axis in needed))
        yield left, right, result if index == len(others) - 1 else made
        left = made


def _terms(equation: str, read: Sequence[Value | None]) -> tuple[str, str, str] | None:
    """A letter for each axis of two factors and of the result; None for another number of factors.

    An equation that leaves out the result means that of the axes without letters, and of the letters that
    stand there once, in the order of the alphabet.
    """
    factors, arrow, result = equation.partition("->")
    terms = factors.split(",")
    shapes = [value.type.shape if value is not None else None for value in read]
    if len(terms) != 2 or len(shapes) != 2 or None in shapes:
        return None
    letters = factors.replace(_OTHERS, "").replace(",", "")
    counts = {
        len(shape or ()) - len(term.replace(_OTHERS, ""))
        for term, shape in zip(terms, shapes, strict=True)
        if _OTHERS in term
    }
    if not arrow:
        result = (_OTHERS if counts else "") + "".join(
            sorted(one for one in letters if letters.count(one) == 1)
        )
    if len(counts) > 1 or min(counts, default=0) < 0 or (counts and _OTHERS not in result):
        return None
    others = "".join(one for one in ascii_letters if one not in letters)[: sum(counts)]
    left, right, made = (term.replace(_OTHERS, others) for term in (*terms, result))
    return (left, right, made) if f"{left}{right}{made}".isalpha() and left and right else None


def _in_order(data: Value | None, term: str, result: str) -> Writer | None:
    shape = data.type.shape if data is not None else None
    if len(set(term)) < len(term) or sorted(term) != sorted(result) or shape is None:
        return None
    perm = tuple(term.index(axis) for axis in result)
    made = tuple(shape[axis] for axis in perm)
    return lambda build: [build.op("Transpose", data, shape=made, perm=perm)]


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

    @property
    def has_one_matrix(self) -> bool:
        """Whether the second factor is one matrix of known lengths, whatever lengths the first has alone."""
        both, of_left, summed, of_right = self.groups
        known = all(isinstance(length, int) for length in self.lengths(summed + of_right))
        return known and bool(of_left and of_right) and not both

    def write_by_matrix(self, build: Builder) -> list[Value | None]:
        """The axes that the first factor has alone stay as they are, in front."""
        _, of_left, summed, of_right = self.groups
        first = self.moved(build, self.factors[0], self.terms[0], of_left + summed)
        first = self.split(build, first, of_left, (self.joined(summed),))
        second = self.arranged(build, 1, "", summed, of_right)
        shape = (*self.lengths(of_left), self.joined(of_right))
        made = build.op("MatMul", first, second, shape=shape)
        made = self.split(build, made, of_left, self.lengths(of_right))
        return [self.moved(build, made, of_left + of_right, self.terms[2])]

    def split(self, build: Builder, data: Value, kept: str, last: tuple[Length, ...]) -> Value:
        """The data with other last axes behind those that are kept."""
        shape = (*self.lengths(kept), *last)
        if data.type.rank == len(shape):
            return data
        return build.op("Reshape", data, build.shape((0,) * len(kept) + last), shape=shape)

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
