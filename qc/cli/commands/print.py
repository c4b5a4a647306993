"""Print a model as text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import qc
from qc.ir.text import data_path, print_model, save_text
from qc.options import option

from ..command import Command
from ..files import writing
from ..jobs import is_to_compile, start
from ..options import Job
from ..output import print_written


@dataclass(frozen=True, kw_only=True)
class Print(Command):
    """Prints MODEL.onnx as text, which 'qc parse' reads again.

    The model is printed as it is. With a pipeline, passes, a target or data it is compiled first, and printed
    with its regions and quantizers.

    Examples:
        qc print model.onnx
        qc print model.onnx --pipeline w8a8 -o model.txt
    """

    job: Job
    output: Path | None = option(
        None,
        "Write the text there, and the weights beside it into FILE.data.  [default: print, without weights]",
        "-o",
        metavar="FILE",
    )

    def run(self) -> None:
        compiles = is_to_compile(self.job)
        outputs = [] if self.output is None else [self.output, data_path(self.output)]
        task = start(self.job, outputs, compiles=compiles, role="the calibration data")
        model = task.decide().ir if compiles else qc.read_model(self.job.model)
        if self.output is None:
            sys.stdout.write(print_model(model))
            return
        with writing(self.output):
            written = save_text(model, self.output)
        if not self.job.quiet:
            print_written(written)
