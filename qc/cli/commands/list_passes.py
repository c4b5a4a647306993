"""List the passes."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from qc.passes import Stage, registry
from qc.passes.framework.pipeline import COMBINATORS
from qc.rendering.terminal import indented, listing

from ..combinators import describe_combinator
from ..command import Command
from ..docstrings import plain
from ..output import standard_output

_TITLES = {
    Stage.FLOAT: "rewrite the float graph",
    Stage.ANNOTATE: "place and calibrate quantizers",
    Stage.LOWER: "lower the quantized model",
}


@dataclass(frozen=True)
class ListPasses(Command):
    """Lists the passes by stage; a pipeline never goes back to an earlier stage."""

    def run(self) -> None:
        groups = {
            title: [(cls.name, cls.summary()) for cls in registry() if cls.stage is stage]
            for stage, title in _TITLES.items()
        }
        combinators = map(describe_combinator, COMBINATORS.values())
        groups["run other passes"] = [(combinator.name, combinator.summary) for combinator in combinators]
        width = max(len(name) for rows in groups.values() for name, _ in rows)
        console = standard_output()
        for index, (title, rows) in enumerate(groups.items()):
            table = listing(((name, plain(summary).removesuffix(".")) for name, summary in rows), width)
            console.show(*([""] if index else []), Text(title, style="bold"), indented(table))
