"""Regions: named sets of ops, usually a matched supergroup, that own their inside and have a boundary."""

from __future__ import annotations

from dataclasses import dataclass, field

from .graph import Graph, Op, Value


@dataclass(frozen=True, eq=False)
class Region:
    """A set of ops of one graph that counts as a single operator.

    Attributes:
        name: the supergroup, for instance ``layer_norm``.
        ops: the claimed ops in topological order; the last one produces the region's result.
        captures: the values and constants that the pattern named.
    """

    name: str
    graph: Graph
    ops: tuple[Op, ...]
    captures: dict[str, Value] = field(default_factory=dict)

    @property
    def root(self) -> Op:
        """The op that produces the result."""
        return self.ops[-1]

    def is_inner(self, value: Value) -> bool:
        """Whether ``value`` is made and read only inside, so that nothing outside can see it."""
        if self.graph.producer(value) not in self.ops or self.graph.is_output(value):
            return False
        return all(use.op in self.ops for use in self.graph.uses(value))

    def __str__(self) -> str:
        return f"{self.name} ({len(self.ops)} ops ending in {self.root.label})"
