"""Tables as such: what they say, whether a terminal, a page or a program reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .words import finite, printable


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: what stands above it.
        form: the format of its numbers (``.3f``), or a function from a value to its text with the unit.
        is_text: it holds words, at the left, which may be wrapped; else numbers, at the right.
        least_width: how many characters of a line are not wrapped even where there is little room.
    """

    title: str
    form: str | Callable[[Any], str] = ""
    is_text: bool = False
    least_width: int | None = None

    def show(self, value: Any) -> str:
        """The text of a value; none for None."""
        if value is None:
            return ""
        return self.form(value) if callable(self.form) else printable(format(value, self.form))


def text(title: str, least_width: int | None = None) -> Column:
    """A column of words."""
    return Column(title, is_text=True, least_width=least_width)


@dataclass
class Table:
    """Rows of values below titles, in no form yet.

    Attributes:
        rows: one value for each column; None where there is none.
        sums: how many of the last rows are set apart from those before, as sums are.
    """

    columns: Sequence[Column]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    sums: int = 0

    def add(self, *values: Any) -> None:
        """Adds a row; ValueError if it has another number of values than there are columns."""
        if len(values) != len(self.columns):
            raise ValueError(f"a row of {len(values)} values does not fit {len(self.columns)} columns")
        self.rows.append(values)

    def texts(self) -> list[list[str]]:
        """The rows in words."""
        return [
            [column.show(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows
        ]

    def document(self) -> list[dict[str, Any]]:
        """The rows as plain values for JSON, by the titles of the columns."""
        titles = [column.title for column in self.columns]
        return [finite(dict(zip(titles, row, strict=True))) for row in self.rows]
