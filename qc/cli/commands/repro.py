"""Compile what a reproducer holds, to see whether it fails again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qc.options import argument
from qc.progress import RichProgress
from qc.search import Replay, replay

from ..command import Command
from ..output import print_note, standard_error, standard_output


@dataclass(frozen=True, kw_only=True)
class Repro(Command):
    """Compiles what the reproducer DIR holds.

    The same error ends with exit code 6, as it did when it was recorded; success with 0.

    Examples:
        qc repro model.reproducer
    """

    folder: Path = argument("DIR")

    def run(self) -> None:
        with RichProgress(standard_error()) as progress:
            result = replay(self.folder, progress)
        _show(result)
        for name, (then, now) in result.other_versions.items():
            print_note(f"recorded with {name} {then}, this is {now}")
        if result.error is not None:
            raise result.error


def _show(result: Replay) -> None:
    record, console = result.record, standard_output()
    if result.error is None:
        console.show(f"it does not fail any more; it was: {record.error}", wrap=False)
    elif not result.same:
        console.show(f"it fails in another way; it was: {record.error}", wrap=False)
    else:
        if record.failing_pass is not None:
            console.show(f"pass     {record.failing_pass}", wrap=False)
        if record.action is not None:
            console.show(f"action   {record.action.title}", wrap=False)
