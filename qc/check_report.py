"""What ``qc check`` shows: tables for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .checking import Check, CheckedOp
from .report import Fact, count, plain_table, printable

_SHOWN = 3

# What the ops do that do not run in integers, in words.
_RUNS = {
    "float": "in float",
    "breaks": "against a rule",
    "wrong": "in integers, with wrong numbers",
    "unknown": "unknown",
}


def check_document(check: Check) -> dict[str, Any]:
    """The whole check, as JSON has it; times in seconds, shares from 0 to 1."""
    return {
        "target": check.target,
        "executed": check.executed,
        "share": check.share,
        "share_of": "operations" if check.is_weighted else "ops",
        "seconds": check.seconds,
        "ops": [asdict(op) for op in check.ops],
        "rest": [{"op_type": op_type, "seconds": seconds} for op_type, seconds in check.rest],
        "broken": [{"op": op, "rule": rule, "why": why} for op, rule, why in check.broken],
    }


def check_table(check: Check) -> Table:
    """A line for each op type: how many run in integers, share of the operations, time and kernels."""
    numbers = ["integer", "share", *(["time", ""] if check.seconds else [])]
    table = plain_table(("op", *numbers))
    if check.executed:  # at the end, where names that are too long for the terminal break nothing else
        table.add_column("kernels", overflow="fold")
    groups: dict[str, list[CheckedOp]] = {}
    for op in check.counted:
        groups.setdefault(op.op_type, []).append(op)
    total = sum(op.operations or 0 for op in check.counted)
    for op_type, ops in sorted(groups.items(), key=lambda item: -_operations(item[1])):
        integer = sum(op.runs == "integer" for op in ops)
        share = f"{_operations(ops) / total:.1%}" if check.is_weighted and total else ""
        time = _time(_seconds(ops), check.seconds) if check.seconds else []
        kernels = [_kernels(ops)] if check.executed else []
        table.add_row(op_type, f"{integer} of {len(ops)}", share, *time, *kernels)
    for op_type, seconds in check.rest:
        table.add_row(op_type, "", "", *_time(seconds, check.seconds), style="dim")
    return table


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
        lines = [Text(printable(f"{name}: {why}" if name else why)) for name, why in shown]
        if len(cases) > len(shown):
            lines.append(Text(f"and {len(cases) - len(shown):,} more; -v lists them all", style="dim"))
        heading = Text(f"{runs}: {rule}, {count(len(cases), 'time')}", style="bold")
        yield Group(heading, Padding(Group(*lines), (0, 0, 0, 2)))


def check_facts(check: Check, where: str) -> list[Fact]:
    """What was checked, where, and the share that runs in integers."""
    integer = sum(op.runs == "integer" for op in check.counted)
    of = "of the operations" if check.is_weighted else "of the ops, as not all shapes are known"
    rules = ", ".join(dict.fromkeys(printable(rule) for _, rule, _ in check.broken))
    broken = f", but rules of {check.target} are broken: {rules}" if rules else ""
    facts: list[Fact] = [
        ("target", f"{check.target}, {where}"),
        ("integer", f"{integer:,} of {count(len(check.counted), 'op')}, {check.share:.1%} {of}{broken}"),
    ]
    removed = len(check.ops) - len(check.counted)
    if removed:
        facts.append(("removed", f"{count(removed, 'op')} that only moved data"))
    return facts


def _operations(ops: Sequence[CheckedOp]) -> int:
    return sum(op.operations or 0 for op in ops)


def _seconds(ops: Sequence[CheckedOp]) -> float:
    return sum({op.runs_as: op.seconds for op in ops}.values())


def _kernels(ops: Sequence[CheckedOp]) -> str:
    return ", ".join(dict.fromkeys(op.kernel for op in ops if op.kernel))


def _time(seconds: float, total: float) -> list[str]:
    return [f"{seconds * 1000:.3g} ms", f"{seconds / total:.1%}"]
