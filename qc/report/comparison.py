"""Two reports beside each other: a sentence, and tables with what the second differs by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeVar

from qc.coverage import UnquantizedTensor
from qc.rendering.coverage import group_by_reason
from qc.rendering.html import page
from qc.rendering.table import Column, Table, text
from qc.rendering.words import decibels, milliseconds

from .document import KeptLayer, ReportDocument
from .measures import Measure

_SHOWN = 40

Kept = TypeVar("Kept")


def comparison_page(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> str:
    """A self-contained page; all names are escaped.

    Args:
        names: what the two are called, such as the names of their files.
    """
    tables = {
        "Verdict": _measures(a, b, names),
        "Made with": Table((text(""), *map(text, names)), list(_beside(a.made_with, b.made_with))),
        "Tensors by format": _counts("format", a.formats, b.formats, names),
        "What stays float, and why": _counts("reason", _reasons(a), _reasons(b), names),
        "Float in one of them alone": _floats(a, b, names),
        "Time by op type": _times(a, b, names),
        f"Tensors that differ most (the first {_SHOWN})": _layers(a, b, names),
    }
    return page(
        "report/comparison.html",
        title=f"{names[0]} and {names[1]}",
        subtitle=a.title if a.title == b.title else f"{a.title} and {b.title}",
        sentences=list(_sentences(a, b, names)),
        tables={heading: table for heading, table in tables.items() if table.rows},
        recipes=[(name, one.command, one.steps) for name, one in zip(names, (a, b), strict=True)],
    )


# What is said of the second where its number is less, and where it is more.
_WORDS = {
    "SQNR": ("loses {:.1f} dB at the worst output", "gains {:.1f} dB at the worst output"),
    "agreement": ("agrees with float by {:.3f} less", "agrees with float by {:.3f} more"),
    "in integers": ("runs {:.1%} less in integers", "runs {:.1%} more in integers"),
    "time": ("takes {:.0%} less time", "takes {:.0%} more time"),
    "size": ("is {:.0%} smaller", "is {:.0%} larger"),
    "peak memory": ("needs {:.0%} less memory", "needs {:.0%} more memory"),
}
# Differences that would be told as zero.
_LEAST = {"decibels": 0.05, "share": 0.0005, "ratio": 0.005}


def _sentences(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Iterator[str]:
    """Whether they are of one model, and what the second keeps and costs beside the first."""
    if a.title != b.title:
        yield (
            f"These are two models, '{a.title}' and '{b.title}': their numbers do not tell which recipe is "
            "better, and their tensors are compared where names are the same."
        )
    first, second = ({measure.name: measure for measure in one.measures} for one in (a, b))
    told = [_told(first[name], second[name]) for name in _WORDS if name in first and name in second]
    found = [words for words in told if words]
    if found:
        before = f"{', '.join(found[:-1])} and " if len(found) > 1 else ""
        yield f"Beside {names[0]}, {names[1]} {before}{found[-1]}."
    elif told:
        yield f"{names[0]} and {names[1]} keep and cost the same."


def _told(x: Measure, y: Measure) -> str:
    """What the second number is beside the first; nothing if they are about equal, or one is infinite."""
    relative = x.kind == "ratio" and x.number
    change = y.number / x.number - 1 if relative else y.number - x.number
    if not math.isfinite(change) or abs(change) < _LEAST[x.kind]:
        return ""
    less, more = _WORDS[x.name]
    return (more if change > 0 else less).format(abs(change))


def _measures(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    first, second = ({one.name: one for one in each.measures} for each in (a, b))
    table = Table((text("measure"), *map(text, names), text("difference")))
    for name in dict.fromkeys((*first, *second)):
        x, y = first.get(name), second.get(name)
        words = [f"{one.value} ({one.more})" if one is not None else None for one in (x, y)]
        table.add(name, *words, y.beside(x) if x is not None and y is not None else None)
    return table


def _counts(heading: str, a: Mapping[str, int], b: Mapping[str, int], names: tuple[str, str]) -> Table:
    table = Table((text(heading), *map(Column, names), Column("difference", "+d")))
    for name, x, y in _beside(a, b):
        table.add(name, x, y, (y or 0) - (x or 0))
    return table


def _beside(a: Mapping[str, Kept], b: Mapping[str, Kept]) -> Iterator[tuple[str, Kept | None, Kept | None]]:
    for name in dict.fromkeys((*a, *b)):
        yield name, a.get(name), b.get(name)


def _reasons(one: ReportDocument) -> dict[str, int]:
    tensors = [UnquantizedTensor(name, reason) for name, reason in one.float_tensors.items()]
    return {group.reason: len(group.names) for group in group_by_reason(tensors)}


def _times(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    """The op types first whose times differ most."""
    numbers = [Column(name, milliseconds) for name in (*names, "difference")]
    table = Table((text("op"), *numbers))
    found = [(name, x or 0.0, y or 0.0) for name, x, y in _beside(a.seconds, b.seconds)]
    for name, x, y in sorted(found, key=lambda row: -abs(row[2] - row[1])):
        table.add(name, x, y, y - x)
    return table


def _layers(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    """By the error that has come together at a tensor, those first that differ most."""
    first, second = ({layer.tensor: layer for layer in each.layers} for each in (a, b))
    numbers = [Column(f"{kind}, {name}", decibels) for kind in ("isolated", "cumulative") for name in names]
    formats = [text(f"format, {name}") for name in names]
    table = Table((text("tensor"), *formats, *numbers, Column("difference", "+.1f")))
    both = [name for name in first if name in second]
    for name in sorted(both, key=lambda name: -abs(_difference(first[name], second[name])))[:_SHOWN]:
        x, y = first[name], second[name]
        difference = _difference(x, y)
        if difference:
            errors = (x.isolated_db, y.isolated_db, x.cumulative_db, y.cumulative_db)
            table.add(name, x.format, y.format, *errors, difference)
    return table


def _difference(x: KeptLayer, y: KeptLayer) -> float:
    """In dB, of the cumulative errors where both are known; infinite ones stand at the end."""
    a, b = x.cumulative_db, y.cumulative_db
    if a is None or b is None:
        a, b = x.isolated_db, y.isolated_db
    return b - a if math.isfinite(a) and math.isfinite(b) else 0.0


def _floats(a: ReportDocument, b: ReportDocument, names: tuple[str, str]) -> Table:
    table = Table((text("tensor"), text("float in"), text("reason")))
    for name, one, other in zip(names, (a, b), (b, a), strict=True):
        for tensor, reason in one.float_tensors.items():
            if tensor not in other.float_tensors:
                table.add(tensor, name, reason)
    table.rows[_SHOWN:] = []
    return table
