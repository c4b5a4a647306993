"""Ops of a graph that are drawn as one box each, which opens into a picture of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qc.ir.facts.exporter_scopes import exporter_scopes
from qc.ir.graph import Op

_DEEPEST = 24  # parts of a name


@dataclass(frozen=True, eq=False, repr=False)
class Module:
    """Some ops of a graph; nothing leads from them to other ops and back.

    Attributes:
        key: what identifies it in the model.
        label: the part of the names that its ops share, or where they stand in the graph.
        items: what a picture of it shows, in topological order.
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


def scopes_of(op: Op) -> list[str]:
    """The modules around an op, the outermost first, as its exporter wrote them down.

    Without that, the parts of its name but the last, or of the name of the first tensor it makes.
    """
    scopes = [scope for scope in exporter_scopes(op)[:-1] if scope]
    if not scopes:
        made = (value.name for value in op.outputs if value is not None)
        name = op.name or next(made, "")
        scopes = [part for part in name.partition(";")[0].split("/") if part][:-1]  # fused ops join names
    return scopes[:_DEEPEST]
