"""List the supergroups."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from qc.patterns import Supergroup, blocks, supergroups
from qc.rendering.terminal import indented, listing

from ..command import Command
from ..output import standard_output

# Kinds of supergroups, in words.
_KINDS = {
    "normalization": "normalizations",
    "softmax": "softmax",
    "activation": "activations",
    "weighted": "weighted ops with a bias, a BatchNorm, Mul and Add, or an activation behind them",
    "elementwise": "other ops with an activation behind them, and a BatchNorm written out as Mul and Add",
    "block": "blocks: several ops to a target that does not name them",
}


@dataclass(frozen=True)
class ListSupergroups(Command):
    """Lists the supergroups by kind: the sets of ops that a target can run as one, in all their spellings."""

    def run(self) -> None:
        kinds: dict[str, list[Supergroup]] = {}
        for group in (*supergroups(), *blocks()):
            kinds.setdefault(group.kind, []).append(group)
        ordered = sorted(kinds, key=lambda kind: [*_KINDS, kind].index(kind))
        width = max(len(group.name) for groups in kinds.values() for group in groups if not group.options)
        console = standard_output()
        for index, kind in enumerate(ordered):
            title = Text(_KINDS.get(kind, kind), style="bold")
            console.show(*([""] if index else []), title, indented(_group_names(kinds[kind], width)))


def _group_names(groups: list[Supergroup], width: int) -> RenderableType:
    """A listing of supergroups; of a family, what each part of the name stands for."""
    rows: dict[str, str] = {}
    for group in groups:
        if not group.options:
            rows.setdefault(group.name, group.doc)
    for family in (group for group in groups if group.options):
        parts = {part: [label for label in labels if label] for part, labels in family.options.items()}
        known = {label for labels in parts.values() for label in labels}
        alone = [name for name in family.names if name in known]
        rows[family.name] = family.doc
        rows |= {
            f"  {part}": ", ".join(labels) for part, labels in (parts | {"alone": alone}).items() if labels
        }
    return listing(rows.items(), width)
