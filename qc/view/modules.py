"""Ops of a large graph that are drawn as one box each, which opens into a picture of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qc.ir.graph import Op

MOST_BOXES = 200  # in one picture; more cannot be read
_STRETCH = 100
_LEAST = 3  # ops of a module
_DEEPEST = 24  # parts of a name


@dataclass(frozen=True, eq=False, repr=False)
class Module:
    """Some ops of a graph.

    Attributes:
        key: what identifies it in the model.
        label: the part of the names that its ops share, or where they stand in the graph.
        items: what a picture of it shows, in topological order of the first ops.
    """

    key: str
    label: str
    items: tuple[Op | Module, ...]

    @property
    def ops(self) -> Iterator[Op]:
        """All ops, those of modules within as well."""
        return ops_of(self.items)


def ops_of(items: Sequence[Op | Module]) -> Iterator[Op]:
    """The ops of items and of all modules within."""
    for item in items:
        if isinstance(item, Module):
            yield from item.ops
        else:
            yield item


def folded(ops: Sequence[Op], depth: int = 0) -> tuple[Op | Module, ...]:
    """The ops of a graph with modules in place of those that would be too many.

    Modules are made of the scopes in names, such as ``layers.0`` in ``/model/layers.0/mlp/MatMul``, and where
    names tell nothing of stretches of the order.

    Args:
        ops: in topological order.
        depth: how many parts of the names are known to be those of a module around.
    """
    if len(ops) <= MOST_BOXES:
        return tuple(ops)
    groups: dict[str, list[Op]] = {}
    for op in ops:
        scopes = scopes_of(op)
        # An op of no scope at this depth has an entry of its own.
        key = scopes[depth] if depth < len(scopes) else f"/{op.id}"
        groups.setdefault(key, []).append(op)
    if len(groups) == 1:
        return folded(ops, depth + 1)
    items: list[Op | Module] = []
    for label, group in groups.items():
        if len(group) < _LEAST:
            items += group
        else:
            items.append(Module(f"{group[0].id}-{depth}", label, folded(group, depth + 1)))
    return tuple(items) if len(items) <= MOST_BOXES else tuple(_stretches(items, depth))


def _stretches(items: Sequence[Op | Module], depth: int) -> Iterator[Module]:
    size = max(_STRETCH, math.ceil(len(items) / MOST_BOXES))
    for start in range(0, len(items), size):
        stretch = tuple(items[start : start + size])
        ends = [_scope(item, depth) for item in (stretch[0], stretch[-1])]
        place = f"{start + 1:,} to {start + len(stretch):,} of {len(items):,}"
        label = " to ".join(ends) if all(ends) else place
        yield Module(f"{next(ops_of(stretch)).id}-{depth}-stretch", label, stretch)


def _scope(item: Op | Module, depth: int) -> str:
    """What an item is called among others at a depth; nothing for an op of no scope there."""
    if isinstance(item, Module):
        return item.label
    return next(iter(scopes_of(item)[depth:]), "")


def scopes_of(op: Op) -> list[str]:
    """The parts of the name of an op, or of the first tensor it makes, without the last."""
    made = (value.name for value in op.graph.op_outputs(op) if value is not None)
    name = op.name or next(made, "")
    return [part for part in name.split("/") if part][:-1][:_DEEPEST]
