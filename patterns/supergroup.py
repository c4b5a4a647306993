"""Supergroups: named patterns whose matches count as one operator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .pattern import Pattern

if TYPE_CHECKING:
    from .match import Match

Check = Callable[["Match"], str | None]


@dataclass(frozen=True, eq=False)
class Supergroup:
    """A pattern with a name and a meaning.

    Attributes:
        name: the name of its matches; ``{key}`` stands for the taken option of the pattern's choice ``key``.
        pattern: what it looks like.
        doc: one line for people.
        kind: what it is to a target: ``weighted``, ``weighted_activation``, ``elementwise``,
            ``elementwise_activation``, ``normalization``, ``activation`` or ``softmax``.
        inner: captured constants that need no quantizer (an epsilon). Constants that no capture names,
            and values made inside, never need one.
        check: a last condition on a match; returns what is wrong, or None.
    """

    name: str
    pattern: Pattern
    doc: str
    kind: str
    inner: frozenset[str] = field(default_factory=frozenset)
    check: Check | None = None

    @property
    def title(self) -> str:
        """The name with ``*`` for what only a match can tell."""
        return re.sub(r"\{\w+\}", "*", self.name)

    def name_of(self, choices: Mapping[str, str]) -> str:
        """The name of a match that took these options."""
        return self.name.format_map(choices)
