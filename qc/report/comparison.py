"""Two reports beside each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from qc.rendering.html import page
from qc.rendering.table import Column, Table, text
from qc.rendering.words import decibels

from .document import KeptLayer, ReportDocument

_SHOWN = 40


def comparison_page(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> str:
    """A self-contained page; all names are escaped.

    Args:
        names: what the two are called, such as the names of their files.
    """
    tables = {
        "Verdict": _measures(a, b, names),
        "Made with": Table((text(""), *map(text, names)), list(_beside(a.made_with, b.made_with))),
        "Tensors by format": _formats(a, b, names),
        f"Tensors that differ most (the first {_SHOWN})": _layers(a, b, names),
        "Float in one of them alone": _floats(a, b, names),
    }
    return page(
        "report/comparison.html",
        title=f"{names[0]} and {names[1]}",
        subtitle=a.title if a.title == b.title else f"{a.title} and {b.title}",
        tables={heading: table for heading, table in tables.items() if table.rows},
        recipes=[(name, one.command, one.steps) for name, one in zip(names, (a, b), strict=True)],
    )


def _measures(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    first, second = ({one.name: f"{one.value} ({one.more})" for one in each.measures} for each in (a, b))
    return Table((text("measure"), *map(text, names)), list(_beside(first, second)))


def _formats(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    return Table((text("format"), *map(Column, names)), list(_beside(a.formats, b.formats)))


def _beside(a: Mapping[str, object], b: Mapping[str, object]) -> Iterable[tuple[object, ...]]:
    for name in dict.fromkeys((*a, *b)):
        yield name, a.get(name), b.get(name)


def _layers(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    """By the error that has come together at a tensor, those first that differ most."""
    first, second = ({layer.tensor: layer for layer in each.layers} for each in (a, b))
    numbers = [Column(f"{kind}, {name}", decibels) for kind in ("isolated", "cumulative") for name in names]
    table = Table((text("tensor"), *(text(f"format, {name}") for name in names), *numbers))
    both = [name for name in first if name in second]
    for name in sorted(both, key=lambda name: -_difference(first[name], second[name]))[:_SHOWN]:
        x, y = first[name], second[name]
        errors = (x.isolated_db, y.isolated_db, x.cumulative_db, y.cumulative_db)
        if _difference(x, y):
            table.add(name, x.format, y.format, *errors)
    return table


def _difference(x: KeptLayer, y: KeptLayer) -> float:
    """In dB, of the cumulative errors where both are known; infinite ones stand at the end."""
    a, b = x.cumulative_db, y.cumulative_db
    if a is None or b is None:
        a, b = x.isolated_db, y.isolated_db
    return abs(a - b) if math.isfinite(a) and math.isfinite(b) else 0.0


def _floats(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    table = Table((text("tensor"), text("float in"), text("reason")))
    for name, one, other in zip(names, (a, b), (b, a), strict=True):
        for tensor, reason in one.float_tensors.items():
            if tensor not in other.float_tensors:
                table.add(tensor, name, reason)
    table.rows[_SHOWN:] = []
    return table
