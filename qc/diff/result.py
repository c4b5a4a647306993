"""What a comparison of two models finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ADDED, REMOVED, CHANGED = "+", "-", "~"

# The groups in the order in which they are told.
MODEL = "model"
INTERFACE = "interface"
OPS = "ops"
CONSTANTS = "constants"
QUANTIZERS = "quantizers"
REGIONS = "regions"
TYPES = "types"
NAMES = "names"

GROUPS = (MODEL, INTERFACE, OPS, CONSTANTS, QUANTIZERS, REGIONS, TYPES, NAMES)


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        sign: ``+`` added, ``-`` removed, ``~`` changed.
        group: one of :data:`GROUPS`.
        subject: what it is about, in the words of the first model if it is in there.
        detail: how it differs.
        scope: the subgraph or function it is in; empty for the main graph.
        added, removed: the ops that came and went, for a difference between ops.
        numbers: what was measured.
    """

    sign: str
    group: str
    subject: str
    detail: str = ""
    scope: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        place = f"{self.scope}: " if self.scope else ""
        return f"{self.sign} {place}{self.subject}{': ' if self.detail else ''}{self.detail}"


@dataclass(frozen=True)
class ChangeCount:
    """How many things of a group were added, removed and changed."""

    added: int = 0
    removed: int = 0
    changed: int = 0


@dataclass(frozen=True)
class ModelDiff:
    """The differences between two models, by group and then in the order of the graph."""

    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def groups(self) -> Iterator[tuple[str, list[Difference]]]:
        """The groups in which something differs."""
        for group in GROUPS:
            found = [difference for difference in self.differences if difference.group == group]
            if found:
                yield group, found

    def count(self, group: str) -> ChangeCount:
        """How much of a group differs; of ops, each one counts."""
        found = [difference for difference in self.differences if difference.group == group]
        if group != OPS:
            signs = [difference.sign for difference in found]
            return ChangeCount(signs.count(ADDED), signs.count(REMOVED), signs.count(CHANGED))
        return ChangeCount(
            sum(len(difference.added) for difference in found),
            sum(len(difference.removed) for difference in found),
            sum(not difference.added and not difference.removed for difference in found),
        )

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "equal": self.equal,
            "counts": {group: vars(self.count(group)) for group, _ in self.groups()},
            "differences": [
                {name: value for name, value in vars(difference).items() if value}
                for difference in self.differences
            ],
        }

    def __str__(self) -> str:
        return "".join(f"{difference}\n" for difference in self.differences)
