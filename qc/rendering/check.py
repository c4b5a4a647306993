"""What ``qc check`` shows: tables for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from qc.checking import Check, CheckedOp

from .table import Column, Table, text
from .terminal import Fact, indented, lines
from .words import count, milliseconds, printable, share_of

_SHOWN = 3

# What the ops do that do not run in integers, in words.
_RUNS = {
    "float": "in float",
    "refused": "refused",
    "breaks": "against a rule",
    "wrong": "in integers, with wrong numbers",
    "unknown": "unknown",
}


def check_document(check: Check) -> dict[str, Any]:
    """The whole check, as JSON has it; times in seconds, shares from 0 to 1."""
    return {
        "target": check.target,
        "made_for": check.made_for or None,
        "executed": check.executed,
        "where": check.where,
        "share": check.share,
        "share_of": check.share_of,
        "time_share": check.time_share,
        "seconds": check.seconds,
        "ops": [asdict(op) for op in check.ops],
        "rest": [{"op_type": op_type, "seconds": seconds} for op_type, seconds in check.rest],
        "broken": [{"op": op, "rule": rule, "why": why} for op, rule, why in check.broken],
    }


def check_table(check: Check) -> Table:
    """A line for each op type: how many run in integers, share of the multiplications, time and kernels."""
    time = (Column("time", milliseconds), Column("", ".1%")) if check.seconds else ()
    kernels = (text("kernels"),) if check.executed else ()  # at the end, where long ones break nothing else
    table = Table((text("op"), Column("integer"), Column("share", ".1%"), *time, *kernels))
    groups = _by_type(check)
    total = _multiplications(check.counted)

    def add(op_type: str, integer: str | None, share: float | None, seconds: float, used: str | None) -> None:
        times = (seconds, seconds / check.seconds) if check.seconds else ()
        table.add(op_type, integer, share, *times, *((used,) if check.executed else ()))

    for op_type, ops in sorted(groups.items(), key=lambda item: -_multiplications(item[1])):
        integer = sum(op.runs == "integer" for op in ops)
        share = _multiplications(ops) / total if check.is_weighted and _multiplications(ops) else None
        add(op_type, f"{integer} of {len(ops)}", share, _seconds(ops), _kernels(ops))
    for op_type, seconds in check.rest:
        add(op_type, None, None, seconds, None)
    return table


def seconds_by_type(check: Check) -> dict[str, float]:
    """The time of one run by op type; nothing if it was not timed."""
    if not check.seconds:
        return {}
    return {op_type: _seconds(ops) for op_type, ops in _by_type(check).items()} | dict(check.rest)


def _by_type(check: Check) -> dict[str, list[CheckedOp]]:
    """The ops by type; the time of a kernel that runs several counts for the first of them."""
    groups: dict[str, list[CheckedOp]] = {}
    timed: set[str] = set()
    for op in check.counted:
        seconds = 0.0 if op.runs_as in timed else op.seconds
        groups.setdefault(op.op_type, []).append(replace(op, seconds=seconds))
        timed.add(op.runs_as)
    return groups


def check_reasons(check: Check, verbose: bool) -> Iterable[RenderableType]:
    """The ops that do not run in integers and the rules that are broken, grouped by the rule."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for op in check.counted:
        if op.runs != "integer":
            groups.setdefault((_RUNS[op.runs], op.rule), []).append((op.name, op.why))
    for name, rule, why in check.broken:
        groups.setdefault(("broken", rule), []).append((name, why))
    for (runs, rule), cases in groups.items():
        shown = cases if verbose else cases[:_SHOWN]
        rest = len(cases) - len(shown)
        more = [f"and {rest:,} more; -v lists them all"] if rest else []
        heading = Text(f"{runs}: {rule}, {count(len(cases), 'time')}", style="bold")
        told = lines(f"{name}: {why}" if name else why for name, why in shown)
        yield Group(heading, indented(told), indented(lines(more, "dim")))


def check_facts(check: Check) -> list[Fact]:
    """What was checked, where, and the share that runs in integers."""
    rules = ", ".join(dict.fromkeys(printable(rule) for _, rule, _ in check.broken))
    broken = f", but rules of {check.target} are broken: {rules}" if rules else ""
    facts: list[Fact] = [
        ("target", f"{check.target}, {check.where}"),
        ("integer", integer_share(check) + broken),
    ]
    return facts


def integer_share(check: Check) -> str:
    """``8 of 51 ops, 2 removed, 100.0% of the multiplications, 73.4% of the time``.

    The ops are those of a coverage.
    """
    integer, removed = (sum(op.runs == runs for op in check.ops) for runs in ("integer", "removed"))
    found = [f"{integer:,} of {count(len(check.ops), 'op')}"]
    if removed:
        found.append(f"{removed:,} removed")
    if check.is_weighted:
        found.append(share_of(check.share, check.share_of))
    elif any(op.multiplications is None for op in check.counted):
        found.append(f"{share_of(check.share, check.share_of)}, as not all shapes are known without data")
    if check.time_share is not None:
        found.append(share_of(check.time_share, "time"))
    return ", ".join(found)


def _multiplications(ops: Sequence[CheckedOp]) -> int:
    return sum(op.multiplications or 0 for op in ops)


def _seconds(ops: Sequence[CheckedOp]) -> float:
    return sum(op.seconds for op in ops)


def _kernels(ops: Sequence[CheckedOp]) -> str:
    return ", ".join(dict.fromkeys(op.kernel for op in ops if op.kernel))
