"""List the pipelines that come with qc."""

from __future__ import annotations

from dataclasses import dataclass

from qc import pipeline_names, resolve_pipeline
from qc.rendering.terminal import listing

from ..command import Command
from ..output import standard_output


@dataclass(frozen=True)
class ListPipelines(Command):
    """Lists the pipelines that come with qc; 'qc help NAME' shows what is in one."""

    def run(self) -> None:
        files = map(resolve_pipeline, pipeline_names())
        rows = (
            (file.name, file.description + (f"; for {file.target}" if file.target else "")) for file in files
        )
        standard_output().show(listing(rows))
