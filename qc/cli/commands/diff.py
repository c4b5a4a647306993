"""Show how two models differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

import qc
from qc.diff import ChangeCount, Difference, ModelDiff, diff_models
from qc.options import argument, option
from qc.passes.lower.qdq.fit_kernels import unfit_kernels
from qc.rendering.terminal import facts_grid
from qc.rendering.words import printable

from ..command import Command
from ..files import check_outputs, model_files, write_json
from ..output import ReportConsole, print_written, standard_output

DIFFERENT = 1
_SHOWN = 12
_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@dataclass(frozen=True, kw_only=True)
class Diff(Command):
    """Shows how model B differs from model A: + added, - removed, ~ changed.

    Ops and tensors are recognized by name or by their place in the graph. A tensor that is quantized and
    dequantized again is shown as quantized, and a folded batch normalization as folded; channels of zeros
    and zero points of -1 that a target wanted do not count. The exit code is 0 if the models are equal and 1
    if they differ.

    Examples:
        qc diff model.onnx model.q.onnx
    """

    first: str = argument("A.onnx")
    second: str = argument("B.onnx")
    verbose: bool = option(False, "Show all differences, not only the first of each kind.", "-v")
    quiet: bool = option(False, "Tell the result by the exit code alone.", "-q")
    json_file: Path | None = option(None, "Write all differences as JSON, too.", "--json", metavar="FILE")

    def run(self) -> int:
        a, b = qc.read_model(self.first), qc.read_model(self.second)
        if self.json_file is not None:
            inputs = (
                *model_files(self.first, a.origin, "the first model"),
                *model_files(self.second, b.origin, "the second model"),
            )
            check_outputs([self.json_file], inputs)
        for model in (a, b):
            unfit_kernels(model)
        found = diff_models(a, b)
        if self.json_file is not None:
            write_json(self.json_file, found.document())
        if not self.quiet:
            _show(standard_output(), self.first, self.second, found, None if self.verbose else _SHOWN)
            print_written([self.json_file])
        return 0 if found.equal else DIFFERENT


def _show(console: ReportConsole, first: str, second: str, found: ModelDiff, limit: int | None) -> None:
    if found.equal:
        console.show(printable(f"{first} and {second} are equal"))
        return
    console.show(
        Text(printable(f"- {first}"), "red"), Text(printable(f"+ {second}"), "green"), "", wrap=False
    )
    console.show(facts_grid((group, _counted(found.count(group))) for group, _ in found.groups()))
    hidden = 0
    for group, differences in found.groups():
        shown = differences[:limit]
        hidden += len(differences) - len(shown)
        console.show("", Text(group, style="bold"), *_lines(shown), wrap=False)
        if len(shown) < len(differences):
            console.show(Text(f"  and {len(differences) - len(shown):,} more", "dim"))
    if hidden:
        console.show("", Text("-v shows all differences", "dim"))


def _counted(number: ChangeCount) -> str:
    """``3 added, 1 changed``."""
    return ", ".join(f"{value:,} {word}" for word, value in vars(number).items() if value)


def _lines(differences: list[Difference]) -> Iterator[Text]:
    """The differences; the subgraph they are in is told once."""
    scope = ""
    for difference in differences:
        if difference.scope != scope:
            scope = difference.scope
            yield Text(f"  in {printable(scope)}" if scope else "  in the main graph", "dim")
        detail = f": {difference.detail}" if difference.detail else ""
        yield Text.assemble(
            (f"{difference.sign} {printable(difference.subject)}", _COLOURS[difference.sign]),
            printable(detail),
        )
