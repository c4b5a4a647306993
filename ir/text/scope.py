"""How the text names the values and ops of a graph, and in which order it mentions the values.

``%x`` is a value. A second value of that name, in the same or an enclosing graph, is ``%x#1``. An op is named
by its first result; one without results is ``op 3``, by its place in the graph. What is in a nested graph is
named ``%x in then_branch of %y``, what is in a function ``%x in my::scaled``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from ..graph import Graph, Op, Value
from .value_types import type_text
from .words import all_named, named, worded

Place = tuple[int, ...]


def function_path(domain: str, name: str, overload: str) -> str:
    """How a local function is named."""
    return f"{worded(domain)}::{worded(name)}" + (f"#{worded(overload)}" if overload else "")


def graph_word(key: str) -> str:
    """The name of a nested graph: that of its attribute, with an index if it is one of a list."""
    name, colon, index = key.rpartition(":")
    return f"{worded(name)}:{index}" if colon and index.isdigit() else worded(key)


def names_of(values: Iterable[Value | None]) -> list[str]:
    """The names of values as protos have them, empty for one that is left out."""
    return [value.name if value is not None else "" for value in values]


class Scope:
    """The names of one graph, in terms of the text.

    Attributes:
        path: behind the name of anything in this graph; empty for the main graph.
        order: the values in the order in which the text mentions them first.
        second: captured values that are here a second time.
    """

    def __init__(self, graph: Graph, outer: Scope | None, path: str) -> None:
        self.graph = graph
        self.path = path
        self.order: dict[int, Value] = {}
        self.second: list[Value] = []
        self._outer = outer
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._claim(graph.values())

    def _claim(self, values: list[Value]) -> None:
        for value in values:
            if value.captured is not None:  # it has the name that the enclosing graph has for it
                name = self.outer_name(value)
                if name in self._taken:
                    self.second.append(value)
                else:
                    self._taken.add(name)
                    self._names[value.id] = name
        own = [value for value in values if value.id not in self._names]
        names = [f"%{name}" for name in all_named([value.name for value in own])]
        for value, name in zip(own, names, strict=True):
            if name in self._taken or self._outer is not None:
                name = self._free(name)
            self._taken.add(name)
            self._names[value.id] = name

    def _free(self, name: str) -> str:
        """The name with the lowest number that no value here or around has."""
        numbered = (f"{name}#{count}" for count in itertools.count(1))
        return next(found for found in itertools.chain([name], numbered) if not self._is_taken(found))

    def _is_taken(self, name: str) -> bool:
        return name in self._taken or (self._outer is not None and self._outer._is_taken(name))

    def name(self, value: Value) -> str:
        """How the text names a value; one that is not in the graph any more by its bare name."""
        return self._names.get(value.id) or f"%{named(value.name)}"

    def outer_name(self, value: Value) -> str:
        """How the enclosing graph names a captured value."""
        assert self._outer is not None and value.captured is not None
        return self._outer.name(value.captured)

    def op(self, op: Op) -> str:
        """How the text names an op."""
        first = next((value for value in op.outputs if value is not None), None)
        return f"op {self.graph.ops().index(op)}" if first is None else self.name(first)

    def has_own_name(self, value: Value) -> bool:
        """Whether the value belongs to this graph, and no other one has its name."""
        return value.captured is None and self.name(value) == f"%{named(value.name)}"

    def mention(self, value: Value) -> str:
        """Its name; a captured value is mentioned in the enclosing graph as well."""
        if value.id not in self.order:
            if value.captured is not None and self._outer is not None:
                self._outer.mention(value.captured)
            self.order[value.id] = value
        return self._names[value.id]

    def mention_all(self, values: Iterable[Value | None]) -> list[str]:
        """The names of values, with ``_`` for one that is left out."""
        if self._outer is not None:
            return ["_" if value is None else self.mention(value) for value in values]
        names = self._names  # nothing is captured here, and everything is mentioned where it is made
        return ["_" if value is None else names[value.id] for value in values]

    def introduce(self, values: Sequence[Value | None]) -> list[str]:
        """The names and types of values, with ``_`` for one that is left out."""
        order, names, found = self.order, self._names, []
        for value in values:
            if value is not None:
                order[value.id] = value
            found.append("_" if value is None else f"{names[value.id]}: {type_text(value.type)}")
        return found

    def later(self) -> list[Value]:
        """The values that are younger than one that the text mentions behind them, and all younger ones.

        The others have the age that the text suggests. Once they are made, these are, in this order.
        """
        lowest, misplaced = math.inf, []
        for id in reversed(self.order):
            if id > lowest:
                misplaced.append(id)
            lowest = min(id, lowest)
        first = min(misplaced, default=math.inf)
        return [self.order[id] for id in sorted(self.order) if id >= first]


def places(ops: list[Op]) -> list[Place | None]:
    """The positions of ops, as far as the text has to tell them, counted without gaps.

    An op without one stands behind the op before it. An op that a pass made has the position of the op in
    whose place it came, and a number of its own behind that.
    """
    given = [op.position for op in ops]
    if all(len(position) == 1 for position in given) and given == sorted(given):
        return [None] * len(ops)
    counted = _counted(sorted(given))
    found: list[Place | None] = []
    expected = 0
    for op in ops:
        place = counted[op.position]
        found.append(None if place == (expected,) else place)
        expected = place[0] + 1
    return found


def _counted(positions: list[Place]) -> dict[Place, Place]:
    """Sorted positions with the numbers at every depth counted from 0; negative ones stay as they are."""
    counts: dict[Place, int] = {}
    found: dict[Place, Place] = {(): ()}
    for position in positions:
        for depth in range(1, len(position) + 1):
            place, above = position[:depth], position[: depth - 1]
            if place not in found:
                number = place[-1] if place[-1] < 0 else counts.get(above, 0)
                counts[above] = max(number + 1, 0)
                found[place] = (*found[above], number)
    return found
