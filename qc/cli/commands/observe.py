"""Collect the statistics that calibration needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qc.options import option
from qc.progress import RichProgress

from ..collecting import executor, write_statistics
from ..command import Command
from ..files import check_statistics_output, toml_files
from ..jobs import start
from ..options import Collecting, Job
from ..output import standard_error


def shard(text: str) -> tuple[int, int]:
    """``I/N``: part I of N, counted from 1."""
    index, _, number = text.partition("/")
    if not (index.isdecimal() and number.isdecimal() and 1 <= int(index) <= int(number)):
        raise ValueError(f"{text!r} is not of the form I/N, with I from 1 to N")
    return int(index), int(number)


@dataclass(frozen=True, kw_only=True)
class Observe(Command):
    """Collects what the pipeline calibrates MODEL.onnx on, for 'qc MODEL.onnx --statistics FILE'.

    Parts of the data can be observed on several machines, with --shard, and merged by 'qc merge-statistics':
    the result is that of one run, bit for bit.

    Examples:
        qc observe model.onnx --data photos --preset imagenet --shard 1/2 -o first.npz
        qc model.onnx --statistics first.npz
    """

    if_quantized = "'qc observe FLOAT.onnx' is for the float model that it was made of"

    job: Job
    output: Path | None = option(
        None,
        "Where to write the statistics.  [default: MODEL.statistics.npz in the current folder]",
        "-o",
        metavar="FILE",
    )
    shard: tuple[int, int] | None = option(
        None, "Take only part I of N of the data: every N-th sample.", metavar="I/N", parse=shard
    )
    also_for: tuple[str, ...] = option(
        (), "Collect what this target needs, too; may be repeated.", metavar="NAME|FILE"
    )
    collecting: Collecting

    def run(self) -> None:
        output = self.output or Path(f"{Path(self.job.model).stem}.statistics.npz")
        targets = [file for name in self.also_for for file in toml_files(name, "a target")]
        task = start(self.job, [output], targets, role="the calibration data", purpose="to observe")
        check_statistics_output(output)
        data = task.data
        if self.shard is not None and data is not None:
            data = data.shard(self.shard[0] - 1, self.shard[1])
        with RichProgress(standard_error()) as progress:
            compilation = replace(task.compilation, data=data, progress=progress)
            collects = executor(compilation, self.collecting, identify_feeds=True)
            compilation = replace(compilation, executor=collects)
            statistics = compilation.observe(self.also_for)
        write_statistics(statistics, output, self.job.quiet, part=self.shard)
