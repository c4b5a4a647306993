"""What the passes of a compilation took and did."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from qc.ir.analysis import Lookups
from qc.ir.journal import Remark
from qc.passes import PipelineReport

from .remarks import count_by_rule
from .table import Column, Table, text


def timing_table(report: PipelineReport) -> Table:
    """Time, memory and analyses of each step; the steps of a loop are listed once for every round.

    Of the analyses that a step asked for, those are told apart that had to be computed.
    """
    seconds = [Column(title, ".3f") for title in ("seconds", "self", "verify")]
    share, memory = Column("share", ".0%"), Column("memory", _megabytes)
    names = (len("  " * step.depth + step.text.partition("{")[0]) for step in report.steps)
    name = text("pass", max(names, default=0))  # options may be wrapped, names not
    table = Table((name, *seconds, share, memory, Column("actions"), Column("analyses")), sums=1)
    total = report.seconds
    for step in report.steps:
        table.add(
            "  " * step.depth + step.text,
            step.seconds,
            step.self_seconds,
            step.verify_seconds or None,
            step.seconds / total if total and not step.depth else None,
            step.memory or None,
            step.actions or None,
            _computed_of_asked(step.analyses),
        )
    own = sum(step.self_seconds for step in report.steps)
    verify = sum(step.verify_seconds for step in report.steps)
    table.add("all", total, own, verify, None, None, report.actions, _computed_of_asked(report.analyses))
    return table


def _megabytes(size: float) -> str:
    return f"{size / 2**20:+.1f} MB"


def _computed_of_asked(analyses: Mapping[str, Lookups]) -> str | None:
    computed, reused, _ = functools.reduce(Lookups.plus, analyses.values(), Lookups())
    return f"{computed:,} of {computed + reused:,}" if computed or reused else None


def analyses_table(analyses: Mapping[str, Lookups]) -> Table:
    """How often each analysis was computed, how often its kept result was used, and the time it took."""
    columns = (text("analysis"), Column("computed", ","), Column("reused", ","), Column("seconds", ".3f"))
    return Table(columns, [(name.replace("_", " "), *counts) for name, counts in analyses.items()])


def statistics_table(remarks: Iterable[Remark]) -> Table:
    """How many remarks each pass made, by kind and, for rewrites and matches, by rule."""
    columns = (text("pass"), text("what"), text("rule"), Column("number", ","))
    return Table(columns, [(*what, number) for what, number in count_by_rule(remarks).items()])
