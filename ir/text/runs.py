"""Lists of things that mostly follow each other: ``%a .. %d`` is a run of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .scanner import Scanner

TO = " .. "


def runs(numbers: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """The places of the first and the last number of every run of numbers that follow each other."""
    start = 0
    for end in range(1, len(numbers) + 1):
        before = numbers[end - 1]
        if end == len(numbers) or before is None or numbers[end] != before + 1:
            yield start, end - 1
            start = end


def runs_text(names: Sequence[str], numbers: Sequence[int | None]) -> str:
    """The names, those of a run as its first and last."""
    pairs = ((names[start], names[end]) for start, end in runs(numbers))
    return ", ".join(first if first == last else f"{first}{TO}{last}" for first, last in pairs)


def accept_to(scanner: Scanner) -> bool:
    """Whether what was read begins a run, whose last one comes next."""
    return scanner.accept(TO.lstrip())
