"""Looking into a compilation: what each pass saw, did and decided, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.text import Text

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError, nearest
from qc.passes import DumpModel, Instrument, Pipeline, PrintModel, registry
from qc.passes.framework.instruments import ALL, CHANGED
from qc.rendering.passes import analyses_table, statistics_table, timing_table
from qc.rendering.remarks import remark_document, remark_line, select_remarks
from qc.rendering.terminal import rendered
from qc.rendering.words import printable

from .options import Instrumentation
from .output import ReportConsole


def instruments(watch: Instrumentation, pipeline: Pipeline, console: ReportConsole) -> list[Instrument]:
    """What is to watch the passes.

    Raises:
        UsageError: a pass that does not exist or is not in the pipeline, an expression that is not valid, or
            a folder that cannot be written to.
    """
    before = _checked("--print-before", watch.print_before, (ALL,), pipeline)
    after = _checked("--print-after", watch.print_after, (ALL, CHANGED), pipeline)
    select_remarks((), watch.remarks or "")
    found: list[Instrument] = []
    if before or after or watch.print_diff:
        found.append(PrintModel(_writer(console), before, after, watch.print_diff))
    if watch.dump_dir is not None:
        if watch.dump_dir.exists() and not watch.dump_dir.is_dir():
            raise UsageError(f"--dump-dir '{watch.dump_dir}' is not a folder")
        found.append(DumpModel(watch.dump_dir))
    return found


def show(watch: Instrumentation, console: ReportConsole, compiled: Compiled) -> None:
    """Shows what was asked for."""
    remarks = compiled.ir.journal.remarks
    if watch.remarks is not None:
        console.show(Text("remarks", style="bold"))
        lines = [printable(remark_line(remark)) for remark in select_remarks(remarks, watch.remarks)]
        console.show(*lines, "", wrap=False)
    if watch.stats:
        console.show(statistics_table(remarks), "")
    if watch.time:
        console.show(rendered(timing_table(compiled.report), gap=1), "")
        console.show(analyses_table(compiled.report.analyses), "")


def documents(watch: Instrumentation, compiled: Compiled) -> dict[Path, str]:
    """The text of every file that is wanted about the compilation."""
    if watch.remarks_out is None:
        return {}
    remarks = map(remark_document, compiled.ir.journal.remarks)
    return {watch.remarks_out: "".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in remarks)}


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
