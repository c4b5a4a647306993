"""Options that look into a compilation: what each pass saw, did and decided, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text

from qc.compiled import Compiled
from qc.ir.errors import UsageError, nearest
from qc.passes import DumpModel, Instrument, Pipeline, PrintModel, registry
from qc.passes.framework.instruments import ALL, CHANGED
from qc.report.passes import analyses_table, statistics_table, timing_table
from qc.report.remarks import remark_document, remark_line, select_remarks
from qc.report.terminal import rendered
from qc.report.words import printable

from .files import FileType, WordType
from .option_types import CountType
from .output import ReportConsole

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--print-before",
        metavar="PASS|all",
        type=WordType(),
        multiple=True,
        help="Print the model before a pass; may be repeated.",
    ),
    click.option(
        "--print-after",
        metavar="PASS|all|changed",
        type=WordType(),
        multiple=True,
        help="Print the model after a pass, or after each one that changed it; may be repeated.",
    ),
    click.option("--print-diff", is_flag=True, help="Print the lines that each pass changed."),
    click.option(
        "--dump-dir", metavar="DIR", type=FileType(), help="Write the model after every pass into a folder."
    ),
    click.option(
        "--verify-each/--no-verify-each",
        default=True,
        help="Verify the model after every pass.  [default: do]",
    ),
    click.option(
        "--check-analyses",
        is_flag=True,
        help="Compute every analysis again after every pass and compare, to find a pass that changes the "
        "model unseen.",
    ),
    click.option("--time", is_flag=True, help="Show time, memory and analyses of every pass."),
    click.option("--stats", is_flag=True, help="Show how often each rule was applied."),
    click.option(
        "--remarks",
        metavar="[=REGEX]",
        help="Show what was done and decided, and why; all of it, or what fits.",
    ),
    click.option(
        "--remarks-out", metavar="FILE", type=FileType(), help="Write all remarks, as JSON, one on a line."
    ),
    click.option(
        "--bisect-limit",
        metavar="N",
        type=CountType(least=0),
        help="Stop after action N, to find the one that does harm.",
    ),
)


def instrumentation_options(command: F) -> F:
    """Gives a command all options that :class:`Instrumentation` holds."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Instrumentation:
    """The options that look into a compilation, as they were given."""

    print_before: tuple[str, ...]
    print_after: tuple[str, ...]
    print_diff: bool
    dump_dir: Path | None
    verify_each: bool
    check_analyses: bool
    time: bool
    stats: bool
    remarks: str | None
    remarks_out: Path | None
    bisect_limit: int | None

    def instruments(self, pipeline: Pipeline, console: ReportConsole) -> list[Instrument]:
        """What is to watch the passes.

        Raises:
            UsageError: a pass that does not exist or is not in the pipeline, an expression that is not
                valid, or a folder that cannot be written to.
        """
        before = _checked("--print-before", self.print_before, (ALL,), pipeline)
        after = _checked("--print-after", self.print_after, (ALL, CHANGED), pipeline)
        select_remarks((), self.remarks or "")
        found: list[Instrument] = []
        if before or after or self.print_diff:
            found.append(PrintModel(_writer(console), before, after, self.print_diff))
        if self.dump_dir is not None:
            if self.dump_dir.exists() and not self.dump_dir.is_dir():
                raise UsageError(f"--dump-dir '{self.dump_dir}' is not a folder")
            found.append(DumpModel(self.dump_dir))
        return found

    def show(self, console: ReportConsole, compiled: Compiled) -> None:
        """Shows what was asked for."""
        remarks = compiled.ir.journal.remarks
        if self.remarks is not None:
            console.show(Text("remarks", style="bold"))
            lines = [printable(remark_line(remark)) for remark in select_remarks(remarks, self.remarks)]
            console.show(*lines, "", wrap=False)
        if self.stats:
            console.show(statistics_table(remarks), "")
        if self.time:
            console.show(rendered(timing_table(compiled.report), gap=1), "")
            console.show(analyses_table(compiled.report.analyses), "")

    def documents(self, compiled: Compiled) -> dict[Path, str]:
        """The text of every file that is wanted about the compilation."""
        if self.remarks_out is None:
            return {}
        remarks = map(remark_document, compiled.ir.journal.remarks)
        return {self.remarks_out: "".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in remarks)}


def _writer(console: ReportConsole) -> Callable[[str], object]:
    return lambda text: console.show(*map(printable, text.splitlines()), wrap=False)


def _checked(option: str, names: Sequence[str], words: Sequence[str], pipeline: Pipeline) -> frozenset[str]:
    """The names; raises UsageError if one is neither a word of the option nor a pass of the pipeline."""
    present = [step.name for step in pipeline.passes()]
    for name in names:
        if name in words or name in present:
            continue
        if name in registry().names():
            raise UsageError(
                f"{option}: pass '{name}' is not in the pipeline; its passes: {', '.join(present)}"
            )
        raise UsageError(f"{option}: there is no pass '{name}'{nearest(name, [*words, *present])}")
    return frozenset(names)
