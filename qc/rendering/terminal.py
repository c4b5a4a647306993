"""Tables and facts on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich import table as rich_table
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from .table import Table
from .words import printable

Fact = tuple[str, RenderableType]

_SEPARATORS = "/.:_"  # within a name: behind one of them it may go on in the next line


class Wrapped:
    """Text that is wrapped between words, and a word that has no room in a line behind a part of its name.

    With ``by_phrases`` it is wrapped behind a comma rather than within what stands between two.
    """

    def __init__(self, text: str, by_phrases: bool = False) -> None:
        self._text, self._by_phrases = text, by_phrases

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = _phrases(self._text, options.max_width) if self._by_phrases else self._text
        text = re.sub(r"\S+", lambda word: _broken(word[0], options.max_width), text)
        yield Text(text, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Text(self._text).__rich_measure__(console, options)


def _phrases(text: str, width: int) -> str:
    """Text with line breaks behind commas, as many phrases in a line as have room."""
    first, *others = re.split(r"(?<=,) ", text)
    lines = [first]
    for phrase in others:
        longer = f"{lines[-1]} {phrase}"
        lines[-1:] = [longer] if len(longer) <= width else [lines[-1], phrase]
    return "\n".join(lines)


def _broken(word: str, width: int) -> str:
    """A word with line breaks, where it is longer than a line."""
    pieces = []
    while len(word) > width:
        end = max(word.rfind(one, 1, width) for one in _SEPARATORS) + 1 or width
        pieces.append(word[:end])
        word = word[end:]
    return "\n".join([*pieces, word])


def rendered(table: Table, gap: int = 2, titles: bool = True) -> rich_table.Table:
    """A table without lines; names may be wrapped, numbers not.

    Args:
        gap: the least number of spaces between two columns.
        titles: whether they are shown.
    """
    grid = rich_table.Table(
        box=None, padding=(0, gap, 0, 0), header_style="bold", pad_edge=False, show_header=titles
    )
    for column in table.columns:
        grid.add_column(
            column.title,
            justify="left" if column.is_text else "right",
            overflow="fold",
            no_wrap=not column.is_text,
            min_width=column.least_width,
        )
    for index, row in enumerate(table.texts()):
        if table.sums and index == len(table.rows) - table.sums:
            grid.add_section()
        cells = zip(table.columns, row, strict=True)
        grid.add_row(*(Wrapped(cell, by_phrases=True) if column.is_text else cell for column, cell in cells))
    return grid


def listing(rows: Iterable[tuple[str, str]], width: int | None = None) -> rich_table.Table:
    """Names on the left, a few words about each on the right."""
    grid = rich_table.Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(no_wrap=True, min_width=width)
    grid.add_column()
    for row in rows:
        grid.add_row(*row)
    return grid


def facts_grid(facts: Iterable[Fact]) -> rich_table.Table:
    """Labels on the left, what they stand for on the right."""
    grid = rich_table.Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, content in facts:
        grid.add_row(
            label, Wrapped(printable(content), by_phrases=True) if isinstance(content, str) else content
        )
    return grid


def lines(texts: Iterable[str], style: str = "") -> Group:
    """One line below the other."""
    return Group(*(Text(printable(text), style=style) for text in texts))


def indented(content: RenderableType, by: int = 2) -> Padding:
    """Something moved to the right."""
    return Padding(content, (0, 0, 0, by))
