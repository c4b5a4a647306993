"""Ops that came and went, as edits: connected ones together, with what took their place."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator
from dataclasses import dataclass, field

from qc.ir.graph import Op, Value

from .alignment import Alignment, corresponding
from .folding import Fold
from .wiring import Scope


@dataclass
class Edit:
    """Connected ops of the first graph that are gone, and those of the second in their place.

    Attributes:
        fold: how the removed ops became part of the weights before them, if they did.
    """

    removed: list[Op] = field(default_factory=list)
    added: list[Op] = field(default_factory=list)
    fold: Fold | None = None


def find_edits(a: Scope, b: Scope, by_position: bool, alignment: Alignment) -> list[Edit]:
    """The edits in the order of the first graph, then of the second.

    Ops are connected if one reads what the other makes, and, across the graphs, if what they make is read
    at the same place.
    """
    gone = {op: None for op in a.ops if op not in alignment.ops}
    new = {op: None for op in b.ops if op not in alignment.ops_back}
    sets = _DisjointSets()
    for scope, free in ((a, gone), (b, new)):
        for op in free:
            for maker in _makers(scope, op):
                if maker in free:
                    sets.join(op, maker)
    outputs = corresponding(a.graph.outputs, b.graph.outputs, by_position)
    partners: dict[Op | Value | None, Op | Value | None] = {op: alignment.ops.get(op) for op in a.ops}
    partners.update(outputs)
    exits = {(partners.get(reader), port): op for op, reader, port in _exits(a, gone)}
    for op, reader, port in _exits(b, new):
        if (reader, port) in exits:
            sets.join(exits[reader, port], op)
    edits: dict[Hashable, Edit] = {}
    for op in gone:
        edits.setdefault(sets.root(op), Edit()).removed.append(op)
    for op in new:
        edits.setdefault(sets.root(op), Edit()).added.append(op)
    return list(edits.values())


def _makers(scope: Scope, op: Op) -> Iterator[Op]:
    values = [read.value for read in scope.reads[op] if read is not None]
    for value in (*values, *scope.captured.get(op, ())):
        maker = scope.maker.get(value)
        if maker is not None:
            yield maker


def _exits(scope: Scope, free: Container[Op]) -> Iterator[tuple[Op, Op | Value, int]]:
    """The free ops whose results are read elsewhere: by which other op at which port, or as which output."""
    for op in scope.ops:
        for port, read in enumerate(scope.reads[op]):
            maker = scope.maker.get(read.value) if read is not None and op not in free else None
            if maker is not None and maker in free:
                yield maker, op, port
    for output, read in scope.results.items():
        maker = scope.maker.get(read.value)
        if maker is not None and maker in free:
            yield maker, output, 0


class _DisjointSets:
    """Union and find, by path halving; the set of a later item joins that of an earlier one."""

    def __init__(self) -> None:
        self._parent: dict[Op, Op] = {}

    def root(self, op: Op) -> Op:
        while (parent := self._parent.get(op, op)) is not op:
            self._parent[op] = self._parent.get(parent, parent)
            op = parent
        return op

    def join(self, a: Op, b: Op) -> None:
        self._parent[self.root(b)] = self.root(a)
