"""Delta debugging: the algorithm ddmin of Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input" (IEEE Transactions on Software Engineering, 2002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], test: Callable[[Sequence[T]], bool]) -> list[T]:
    """The items that are left when none of them can be taken away any more.

    Args:
        items: a sequence that passes the test.
        test: whether a part of the items, in their order, still does what is looked for.
    """
    left = list(items)
    pieces = 2
    while len(left) > 1:
        chunks = _split(left, pieces)
        smaller = next((chunk for chunk in chunks if test(chunk)), None)
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        # With two pieces, the complement of one is the other, which has been tried.
        complements = _complements(chunks) if pieces > 2 else []
        smaller = next((rest for rest in complements if test(rest)), None)
        if smaller is not None:
            left, pieces = smaller, max(pieces - 1, 2)
        elif pieces < len(left):
            pieces = min(2 * pieces, len(left))
        else:
            break
    return left


def _split(items: Sequence[T], pieces: int) -> list[list[T]]:
    """Consecutive chunks of nearly equal length."""
    ends = [len(items) * index // pieces for index in range(pieces + 1)]
    return [list(items[start:end]) for start, end in pairwise(ends)]


def _complements(chunks: Sequence[list[T]]) -> list[list[T]]:
    return [
        [item for other in (*chunks[:index], *chunks[index + 1 :]) for item in other]
        for index in range(len(chunks))
    ]
