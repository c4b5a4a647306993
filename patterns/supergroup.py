"""Supergroups: named patterns whose matches count as one operator, or as a block of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .pattern import Alternatives, Pattern
from .shape import children_first

if TYPE_CHECKING:
    from .match import Match

Check = Callable[["Match"], str | None]

BLOCK = "block"
"""The kind of supergroups that devices run as several operators, with tensors of their own in between."""


@dataclass(frozen=True, eq=False)
class Supergroup:
    """A pattern with a name and a meaning.

    Attributes:
        name: the name of its matches; ``{key}`` stands for the taken option of the pattern's choice ``key``.
        pattern: what it looks like.
        doc: one line for people.
        kind: what it is to a target: ``weighted``, ``weighted_activation``, ``elementwise``,
            ``elementwise_activation``, ``normalization``, ``activation``, ``softmax``, ``chain`` (of a target
            file) or ``block``.
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
        return self.name_of({})

    @property
    def options(self) -> tuple[str, ...]:
        """What ``*`` in the title stands for; nothing if all matches have one name."""
        found: dict[str, None] = {}
        for element in children_first([self.pattern]):
            if isinstance(element, Alternatives) and f"{{{element.name}}}" in self.name:
                found.update(dict.fromkeys(element.labels))
        return tuple(found)

    def name_of(self, choices: Mapping[str, str]) -> str:
        """The name of a match that took these options, with ``*`` for those that are not there."""
        return re.sub(r"\{(\w+)\}", lambda key: choices.get(key[1], "*"), self.name)


def pattern_of(pattern: Pattern | Supergroup) -> Pattern:
    """The pattern itself, or that of the supergroup."""
    return pattern.pattern if isinstance(pattern, Supergroup) else pattern
