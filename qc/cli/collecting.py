"""How statistics are collected."""

from __future__ import annotations

from pathlib import Path

from qc.compiler import Compilation
from qc.passes import PipelineFile
from qc.passes.quantize.calibration.calibration import CalibrationPass
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import count, file_size, printable
from qc.runtime import Data, OrtExecutor, Recording, ShardedExecutor, process_executor

from .files import writing
from .options import Collecting
from .output import print_note, standard_error


def executor(
    compilation: Compilation, collecting: Collecting, identify_feeds: bool = False
) -> OrtExecutor | ShardedExecutor:
    """What runs the model; raises QcError if CUDA is asked for but cannot be used."""
    jobs = _workers(compilation.data, collecting.jobs)
    memory = collecting.memory // (jobs or 1) if collecting.memory is not None else None
    inner = compilation.ort_executor(
        identify_feeds=identify_feeds, cache=collecting.cache, memory=memory, on_note=print_note
    )
    return inner if jobs is None else process_executor(jobs, inner)


def _workers(data: object, jobs: int | None) -> int | None:
    """How many processes have something to do: each takes whole samples."""
    samples = data.length if isinstance(data, Data) else None
    if jobs is None or not samples or jobs <= samples:
        return jobs
    print_note(f"--jobs {jobs} is taken for --jobs {samples}, a process for each sample")
    return samples


def check_collecting(collecting: Collecting, pipeline: PipelineFile) -> None:
    """Tells where the options are without effect."""
    asked = [
        name
        for name, value in (
            ("--jobs", collecting.jobs),
            ("--cache", collecting.cache),
            ("--memory", collecting.memory),
        )
        if value is not None
    ]
    for step in pipeline.pipeline.passes():
        if asked and isinstance(step, CalibrationPass) and step.is_sequential:
            print_note(
                f"{' and '.join(asked)} without effect: {step} goes by the first "
                "sample and takes the others in their order, so that they are not divided, and nothing "
                "is kept"
            )


def write_statistics(
    statistics: Recording, output: Path, quiet: bool, part: tuple[int, int] | None = None
) -> None:
    """Writes statistics, and tells about them; ``part`` is that of the data, if they are of one."""
    with writing(output):
        statistics.save(output)
    if quiet:
        return
    samples = count(len(statistics.feeds), "sample")
    facts: list[Fact] = [
        ("tensors", str(statistics.tensors)),
        ("data", samples if part is None else f"{samples}, part {part[0]} of {part[1]}"),
        ("wrote", f"{printable(str(output))}, {file_size(output.stat().st_size)}"),
    ]
    standard_error().show(facts_grid(facts), wrap=False)
