"""Lists of things that mostly follow each other: ``%a .. %d`` is a run of them."""

from __future__ import annotations

from collections.abc import Sequence

TO = ".."


def runs_text(names: Sequence[str], numbers: Sequence[int | None]) -> str:
    """The names, of those whose numbers follow each other only the first and the last."""
    found, start = [], 0
    for end, number in enumerate(numbers):
        if number is None or end + 1 == len(numbers) or numbers[end + 1] != number + 1:
            found.append(names[start] if start == end else f"{names[start]} {TO} {names[end]}")
            start = end + 1
    return ", ".join(found)
