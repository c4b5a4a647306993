"""Why a pattern did not match: the attempt that got furthest, and where it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .pattern import Pattern

NOT_CONSTANT, WRONG_OP, WRONG_PORTS, WRONG_CONTENT, USED_OUTSIDE = range(5)
"""Ranks of failures: no constant; another op; number of inputs or index of the output; wrong constant,
attribute or sharing; all fits, but an inner value is used outside."""


class Failure(NamedTuple):
    """One failed try.

    Attributes:
        matched: ops that had matched before.
        rank: which kind of failure is nearer to success among equals, see the constants below.
        element: the part of the pattern that was tried.
        value: where it was tried; None for an input that is left out.
    """

    matched: int
    rank: int
    element: Pattern
    value: Value | None
    expected: str
    found: str

    @property
    def score(self) -> tuple[int, int]:
        """How near the try came to success."""
        return self.matched, self.rank


@dataclass(frozen=True)
class Mismatch:
    """The answer of a match that failed; false in a condition.

    Attributes:
        name: the supergroup, empty for a bare pattern.
        root: the op that the match started at.
        matched: how many ops matched before the best attempt failed.
        element: the part of the pattern that failed; None when the whole match was rejected.
        value: the value at which it failed.
        expected: what the pattern asks for there.
        found: what the graph has there.
    """

    name: str
    root: Op
    matched: int
    element: Pattern | None
    value: Value | None
    expected: str
    found: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        what = f"{self.name} does not match" if self.name else "no match"
        ops = "1 op" if self.matched == 1 else f"{self.matched} ops"
        return f"{what} at {self.root.label}: after {ops}, expected {self.expected}, found {self.found}"
