"""Solutions of a part of a pattern at one value, computed one by one and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .compiled import Bindings, Choices
from .mismatch import FailedTry

NO_OPS: frozenset[Op] = frozenset()


class Solution(NamedTuple):
    """One way to match an element: what its slots hold, and the ops it covers."""

    bindings: Bindings
    ops: frozenset[Op]


class Attempt:
    """The distinct solutions of one element at one value, computed on demand, and the best failed try.

    It can be iterated many times and by several users at once; each solution is computed once.
    """

    __slots__ = ("_known", "failure", "found", "source")

    def __init__(self, found: list[Solution] | None = None, failure: FailedTry | None = None) -> None:
        self.found = found if found is not None else []
        self.failure = failure
        self.source: Iterator[Solution] | None = None
        self._known: set[Solution] = set()

    def __iter__(self) -> Iterator[Solution]:
        index = 0
        while index < len(self.found) or self._advance():
            yield self.found[index]
            index += 1

    @property
    def is_single(self) -> bool:
        """Whether it is known that there is exactly one solution."""
        return self.source is None and len(self.found) == 1

    def _advance(self) -> bool:
        """Computes the next solution that is not equal to an earlier one."""
        for solution in self.source or ():
            self._known.update(self.found[len(self._known) :])
            if solution not in self._known:
                self.found.append(solution)
                return True
        self.source = None
        return False

    def fail(self, failure: FailedTry) -> None:
        """Remembers the failure that got furthest."""
        if self.failure is None or failure.score > self.failure.score:
            self.failure = failure

    def inherit(
        self,
        inner: Attempt,
        beside: frozenset[Op] = NO_OPS,
        constants: int = 0,
        user: Op | None = None,
        operand: Value | None = None,
        choices: Choices = (),
    ) -> None:
        """Takes over the failure of a part.

        Args:
            inner: the attempt to match the part.
            beside: the ops that have matched before and beside it.
            constants: how many constants have.
            user: the op that reads the part as ``operand``.
            choices: the option of a choice that the part is.
        """
        failure = inner.failure
        if failure is not None:
            is_here = failure.user is None and failure.value is operand
            self.fail(
                failure._replace(
                    ops=failure.ops | beside,
                    constants=failure.constants + constants,
                    user=user if is_here else failure.user,
                    choices=failure.choices + choices,
                )
            )


ABSENT = object()
"""What a slot holds when its element matched an input that is left out."""

FAILED = Attempt()
MATCHED = Attempt([Solution((), NO_OPS)])
"""Success that binds nothing: the empty bindings merge with any."""


def held(value: Value | None) -> object:
    """What a slot holds for a matched value."""
    return ABSENT if value is None else value


def bind(bindings: Bindings, slot: int, content: object) -> Bindings:
    """The bindings with one more slot filled."""
    return (*bindings[:slot], content, *bindings[slot + 1 :])


def merge(bindings: Bindings, more: Bindings) -> Bindings:
    """The bindings with those of a part added; where both hold something it is the same."""
    if not more:
        return bindings
    return tuple([old if new is None else new for old, new in zip(bindings, more, strict=True)])


def extended(state: Solution, part: Solution) -> Solution:
    """A partial solution with that of a further part."""
    ops = state.ops | part.ops if part.ops else state.ops
    return Solution(merge(state.bindings, part.bindings), ops)
