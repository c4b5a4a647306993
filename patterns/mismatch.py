"""Why a pattern did not match: the attempt that got furthest, and where it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .pattern import Pattern


class Reason(IntEnum):
    """Why a try failed. Of tries that got equally far, the one with the higher reason came nearer."""

    NOT_CONSTANT = 0
    WRONG_OP = 1
    WRONG_PORTS = 2
    WRONG_OUTPUT = 3
    REFUSED_VALUE = 4
    OTHER_VALUE = 5
    WRONG_ATTRIBUTE = 6
    OTHER_ATTRIBUTE = 7
    NO_RESULT = 8
    USED_OUTSIDE = 9
    DETOUR = 10
    CHECK = 11


class FailedTry(NamedTuple):
    """One failed try, told as facts: putting them into words can wait until somebody asks.

    Attributes:
        ops: the ops that matched in this try, before the part that failed and beside it.
        reason: what was wrong.
        element: the part of the pattern that was tried.
        value: where it was tried; None for an input that is left out.
        detail: what else the reason needs: the value that was expected, the attribute, the outside user.
        user: the op that reads ``value`` in this try; None at the result.
        constants: how many constants matched on the way there.
        choices: the options of the pattern's choices that were being tried.
    """

    ops: frozenset[Op]
    reason: Reason
    element: Pattern
    value: Value | None
    detail: tuple[object, ...] = ()
    user: Op | None = None
    constants: int = 0
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def score(self) -> tuple[int, int, int]:
        """How near the try came to success."""
        return len(self.ops), self.constants, self.reason


@dataclass(frozen=True)
class Mismatch:
    """The answer of a match that failed; false in a condition.

    Attributes:
        name: the supergroup, with the options filled in that were tried; empty for a bare pattern.
        root: the op that the match started at.
        ops: the ops that matched in the best attempt, in topological order.
        element: the part of the pattern that failed; None when the whole match was rejected.
        value: the value at which it failed.
        expected: what the pattern asks for there, in words.
        found: what the graph has there, in words.
        reason: the place, what is expected and what was found, in one sentence.
    """

    name: str
    root: Op
    ops: tuple[Op, ...]
    element: Pattern | None
    value: Value | None
    expected: str
    found: str
    reason: str

    def __bool__(self) -> bool:
        return False

    @property
    def matched(self) -> int:
        """How many ops matched in the best attempt."""
        return len(self.ops)

    @property
    def extent(self) -> str:
        """How many ops matched, in words."""
        return "1 op fits" if self.matched == 1 else f"{self.matched or 'no'} ops fit"

    def __str__(self) -> str:
        what = f"{self.name} does not match" if self.name else "no match"
        return f"{what} at {self.root.label}: {self.extent}; {self.reason}"
