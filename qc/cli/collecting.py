"""``qc observe`` and ``qc merge-statistics``: calibration in parts, on one machine or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

import qc
from qc.ir.errors import UsageError
from qc.passes import PipelineFile
from qc.passes.quantize.calibration.calibration import CalibrationPass
from qc.progress import RichProgress
from qc.report.terminal import Fact, facts_grid
from qc.report.words import count, file_size, printable
from qc.runtime import OrtExecutor, Recording, ShardedExecutor, choose_provider, process_executor

from .files import FileType, InputFile, WordType, check_outputs, toml_files, writing
from .option_types import MOST_WORKERS, CountType
from .options import Job, JobCommand, chosen, job_options
from .output import print_note, standard_error

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--jobs", metavar="N", type=CountType(most=MOST_WORKERS), help="Calibrate in so many processes."
    ),
    click.option(
        "--cache",
        metavar="DIR",
        type=FileType(),
        envvar="QC_CACHE",
        help="Keep statistics in a folder, to go on after a kill and not to collect them twice.",
    ),
)


def collecting_options(command: F) -> F:
    """Gives a command the options of :class:`Collecting`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Collecting:
    """How statistics are collected."""

    jobs: int | None
    cache: Path | None

    def executor(self, job: Job, identify_feeds: bool = False) -> OrtExecutor | ShardedExecutor:
        """What runs the model; raises QcError if CUDA is asked for but cannot be used."""
        inner = OrtExecutor(
            threads=job.threads,
            provider=choose_provider(job.device),
            identify_feeds=identify_feeds,
            cache=self.cache,
            on_note=print_note,
        )
        return inner if self.jobs is None else process_executor(self.jobs, inner)

    def check(self, pipeline: PipelineFile) -> None:
        """Tells where the options are without effect."""
        asked = [
            name for name, value in (("--jobs", self.jobs), ("--cache", self.cache)) if value is not None
        ]
        for step in pipeline.pipeline.passes():
            if asked and isinstance(step, CalibrationPass) and step.is_sequential:
                print_note(
                    f"{' and '.join(asked)} without effect: {step} goes by the first "
                    "sample and takes the others in their order, so that they are not divided, and nothing "
                    "is kept"
                )


class ShardType(click.ParamType):
    """``I/N``: part I of N, counted from 1."""

    name = "I/N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """The two numbers."""
        index, _, number = str(value).partition("/")
        if not (index.isdecimal() and number.isdecimal() and 1 <= int(index) <= int(number)):
            self.fail(f"{value!r} is not of the form I/N, with I from 1 to N", param, ctx)
        return int(index), int(number)


@click.command("observe", cls=JobCommand, short_help="Collect the statistics that calibration needs.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="Where to write the statistics.  [default: MODEL.statistics.npz in the current folder]",
)
@click.option(
    "--shard", metavar="I/N", type=ShardType(), help="Take only part I of N of the data: every N-th sample."
)
@click.option(
    "--also-for",
    metavar="NAME|FILE",
    type=WordType(),
    multiple=True,
    help="Collect what this target needs, too; may be repeated.",
)
@collecting_options
def observe_command(
    output: Path | None, shard: tuple[int, int] | None, also_for: tuple[str, ...], **given: Any
) -> None:
    """Collects what the pipeline calibrates MODEL.onnx on, for "qc MODEL.onnx --statistics FILE".

    Parts of the data can be observed on several machines, with --shard, and merged by "qc merge-statistics":
    the result is that of one run, bit for bit.
    """
    job = chosen(Job, given)
    collecting = chosen(Collecting, given)
    pipeline = job.chosen_pipeline()
    proto = job.read()
    output = output or Path(f"{Path(job.model).stem}.statistics.npz")
    targets = [file for name in also_for for file in toml_files(name, "a target")]
    check_outputs([output], [*job.inputs(proto, pipeline, "the calibration data"), *targets])
    data = job.feeds(proto)
    if data is None:
        raise UsageError("there is no data to observe; give it with --data")
    if shard is not None:
        data = data.shard(shard[0] - 1, shard[1])
    with RichProgress(standard_error()) as progress:
        statistics = qc.observe(
            job.model,
            pipeline,
            data=data,
            target=job.target,
            also_for=also_for,
            executor=collecting.executor(job, identify_feeds=True),
            progress=progress,
            seed=job.seed,
        )
    _write(statistics, output, job.quiet, part=shard)


@click.command("merge-statistics", short_help="Merge what qc observe wrote for parts of the data.")
@click.argument("files", metavar="FILE.npz...", nargs=-1, required=True, type=WordType())
@click.option(
    "-o", "--output", metavar="FILE", type=FileType(), required=True, help="Where to write the sum."
)
@click.option("-q", "--quiet", is_flag=True, help="Tell nothing but warnings and errors.")
def merge_command(files: tuple[str, ...], output: Path, quiet: bool) -> None:
    """Merges statistics of parts of the data, exactly and in any order; no sample may be in two of them."""
    check_outputs([output], [InputFile(Path(file), "an input") for file in files])
    merged = reduce(Recording.merge, (Recording.load(file) for file in files))
    _write(merged, output, quiet)


def _write(statistics: Recording, output: Path, quiet: bool, part: tuple[int, int] | None = None) -> None:
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
