"""Labels of ops that are equal where ops and their surroundings are, by colour refinement.

The method is that of B. Weisfeiler and A. Leman, "The reduction of a graph to canonical form and the algebra
which appears therein", 1968. Labels are numbers that both graphs share, so that equal labels mean equal
surroundings, without collisions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from qc.ir.graph import Op, Value

from .wiring import GraphWiring, Read

Labels = dict[Op, int]

A = TypeVar("A")
B = TypeVar("B")


class Side(NamedTuple):
    """One of the two graphs.

    Attributes:
        ops: those without a partner, which get labels.
        anchors: the tensors that have a partner, with a number that the partner has as well.
        describe: what an op is apart from its surroundings.
    """

    scope: GraphWiring
    ops: list[Op]
    anchors: Mapping[Value, int]
    describe: Callable[[GraphWiring, Op], Hashable]


def labels_by_radius(sides: tuple[Side, Side], radius: int) -> list[tuple[Labels, Labels]]:
    """The labels of both sides: of the ops alone, then with their surroundings up to ``radius`` steps far."""
    numbers: dict[Hashable, int] = {}
    number = _numbering(numbers)
    labels = [{op: number(side.describe(side.scope, op)) for op in side.ops} for side in sides]
    found = [(labels[0], labels[1])]
    for _ in range(radius):
        labels = [_refined(side, known, number) for side, known in zip(sides, labels, strict=True)]
        found.append((labels[0], labels[1]))
    return found


def grouped(
    a: Iterable[A], b: Iterable[B], key_a: Callable[[A], Hashable], key_b: Callable[[B], Hashable]
) -> Iterator[tuple[list[A], list[B]]]:
    """What has one key on both sides, in the order of the first side."""
    groups: dict[Hashable, tuple[list[A], list[B]]] = {}
    for item in a:
        groups.setdefault(key_a(item), ([], []))[0].append(item)
    for other in b:
        key = key_b(other)
        if key in groups:
            groups[key][1].append(other)
    return (group for group in groups.values() if group[1])


def _numbering(numbers: dict[Hashable, int]) -> Callable[[Hashable], int]:
    return lambda key: numbers.setdefault(key, len(numbers))


def _refined(side: Side, labels: Labels, number: Callable[[Hashable], int]) -> Labels:
    return {op: number((labels[op], *_surroundings(side, labels, op))) for op in side.ops}


def _surroundings(side: Side, labels: Labels, op: Op) -> Iterator[Hashable]:
    """The colours of what ``op`` reads, by port, and of those who read what it makes, sorted."""
    scope = side.scope
    yield tuple(_colour_of_read(side, labels, read) for read in scope.reads[op])
    for value in scope.results[op]:
        users = scope.users.get(value, ()) if value is not None else ()
        yield tuple(sorted((_colour_of_user(side, labels, user.op), user.port or 0) for user in users))


def _colour_of_read(side: Side, labels: Labels, read: Read | None) -> tuple[int, int]:
    if read is None:
        return 0, 0
    if read.value in side.anchors:
        return 1, side.anchors[read.value]
    producer = side.scope.producer.get(read.value)
    return (2, labels[producer]) if producer in labels else (3, 0)


def _colour_of_user(side: Side, labels: Labels, user: Op) -> tuple[int, int]:
    if user in labels:
        return 2, labels[user]
    first = next((value for value in side.scope.results[user] if value in side.anchors), None)
    return (1, side.anchors[first]) if first is not None else (3, 0)
