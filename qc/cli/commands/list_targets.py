"""List the targets that come with qc."""

from __future__ import annotations

from dataclasses import dataclass

from qc.passes.framework.target import load_target, target_names
from qc.rendering.terminal import listing

from ..command import Command
from ..output import standard_output


@dataclass(frozen=True)
class ListTargets(Command):
    """Lists the targets that come with qc."""

    def run(self) -> None:
        standard_output().show(listing((name, load_target(name).summary) for name in target_names()))
