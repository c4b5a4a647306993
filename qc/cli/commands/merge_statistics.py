"""Merge what qc observe wrote for parts of the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from qc.options import REQUIRED, argument, option
from qc.runtime import Recording

from ..collecting import write_statistics
from ..command import Command
from ..files import InputFile, check_outputs, check_statistics_output
from ..options import quiet_option


@dataclass(frozen=True, kw_only=True)
class MergeStatistics(Command):
    """Merges statistics of parts of the data, exactly and in any order; no sample may be in two of them.

    Examples:
        qc merge-statistics first.npz second.npz -o all.npz
    """

    files: tuple[str, ...] = argument("FILE.npz...")
    output: Path = option(REQUIRED, "Where to write the sum.", "-o", metavar="FILE")
    quiet: bool = quiet_option()

    def run(self) -> None:
        recordings = [Recording.load(file) for file in self.files]
        check_outputs([self.output], [InputFile(Path(file), "an input") for file in self.files])
        check_statistics_output(self.output)
        write_statistics(reduce(Recording.merge, recordings), self.output, self.quiet)
