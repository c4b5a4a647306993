"""Compare two files, of any versions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import click
from rich.text import Text

from qc.ir.errors import UsageError
from qc.options import argument, option
from qc.passes.encodings.comparison import Comparison, compare
from qc.rendering.table import Column, Table, text
from qc.rendering.terminal import lines, rendered

from ...command import Command
from ...encodings_files import lifted, model_option, read_document
from ...output import standard_output


@dataclass(frozen=True, kw_only=True)
class Diff(Command):
    """Tells which tensors have another grid in B than in A, and which one of them lacks.

    The exit code is 0 if they say the same, else 1.

    Examples:
        qc encodings diff ours.encodings theirs.encodings --tolerance 0.01
    """

    first: str = argument("A")
    second: str = argument("B")
    model: str | None = model_option()
    tolerance: float = option(0.0, "Relative difference of scales that counts as equal.", metavar="FLOAT")
    as_json: bool = option(False, "Print JSON.", "--json")

    def run(self) -> int:
        ir = lifted(self.model)
        ours, theirs = read_document(self.first, ir), read_document(self.second, ir)
        if ours.layout != theirs.layout:
            raise UsageError(
                f"'{self.first}' is by {ours.layout} and '{self.second}' by {theirs.layout}; add --model, "
                "which tells what belongs together"
            )
        result = compare(ours, theirs, self.tolerance)
        if self.as_json:
            click.echo(json.dumps(asdict(result), indent=2, ensure_ascii=False))
        else:
            _show(result, self.first, self.second)
        return 0 if result.is_equal else 1


def _show(result: Comparison, first: str, second: str) -> None:
    console = standard_output()
    if result.different:
        table = Table((text("tensor"), text("what"), text("detail"), Column("relative", ".3g")))
        for difference in result.different:
            table.add(difference.name, difference.what, difference.detail, difference.relative or None)
        console.show(Text("different", style="bold"), rendered(table, titles=False))
    for names, file in ((result.only_first, first), (result.only_second, second)):
        if names:
            console.show(lines([f"only in {file}"], "bold"), lines(names))
    lacking = len(result.only_first) + len(result.only_second)
    console.show(
        Text(f"{len(result.equal)} equal, {len(result.different)} different, {lacking} in one file only")
    )
