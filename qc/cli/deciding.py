"""Compiling a model only to see what is decided about it: no file comes out, and data may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qc.compiled import Compiled
from qc.passes import Pass, Pipeline, PipelineFile, Stage
from qc.passes.framework.pipeline import Step
from qc.progress import RichProgress

from .candidates import compile_job
from .options import Job
from .output import standard_error


def compiles(job: Job) -> bool:
    """Whether there is anything to compile with; else a model is shown as it is."""
    given = (*job.compile_options().values(), job.data, job.random_data)
    return any(one is not None for one in given)


def compile_decisions(job: Job, pipeline: PipelineFile) -> Compiled:
    """Compiles without the passes that lower and, if there is no data, without those that need it.

    Quantizers have no numbers then.
    """
    data = job.feeds(job.read())
    steps = _deciding(pipeline.pipeline.steps, has_data=data is not None)
    with RichProgress(standard_error()) as progress:
        deciding = replace(pipeline, pipeline=Pipeline(steps))
        return compile_job(job, deciding, data, progress, allow_unquantized=True)


def _deciding(steps: Sequence[Step], has_data: bool) -> list[Step]:
    """The steps without those that lower, and without those that need data if there is none."""
    kept: list[Step] = []
    for step in steps:
        if not isinstance(step, Pass):
            inner = _deciding(step.steps, has_data)
            kept += [replace(step, steps=inner)] if inner else []
        elif step.stage != Stage.LOWER and (has_data or step.needs.isdisjoint({"data", "executor"})):
            kept.append(step)
    return kept
