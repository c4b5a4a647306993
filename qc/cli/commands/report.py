"""Write a page about a result for a colleague, or compare two of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.options import argument, option
from qc.progress import RichProgress
from qc.rendering.words import count
from qc.report import comparison_page, find, read_document, report_page
from qc.runtime import Data

from ..command import Command
from ..files import InputFile, check_outputs, writing
from ..jobs import refuse_compile_options, start
from ..options import Job, calibration_option
from ..output import print_written, standard_error

_PAGES = (".html", ".htm")


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Compiles MODEL.onnx and writes a page: verdict, precision, errors, times, and how to make it again.

    The page needs nothing but a browser, which prints it, too. With two such pages, A.html and B.html, writes
    one that compares them.

    Examples:
        qc report model.onnx --data calibration.npz
        qc report w8a8.html w4a8.html
    """

    elsewhere: ClassVar = {
        "--quantized": "qc compiles what it reports; 'qc eval MODEL.onnx --quantized FILE' compares models"
    }
    if_quantized = (
        "'qc report FLOAT.onnx' is for the float model that it was made of, and 'qc eval FLOAT.onnx "
        "--quantized MODEL.onnx' compares the two"
    )

    job: Job
    other: Path | None = argument("[B.html]", None)
    output: Path | None = option(
        None, "The page.  [default: MODEL.report.html in the current folder]", "-o", metavar="FILE"
    )
    calibration: str | None = calibration_option()
    tensors: tuple[str, ...] = option(
        (),
        "Draw the values of this tensor, instead of those that lose most; may be repeated.",
        "--tensor",
        metavar="NAME",
    )
    sensitivity: bool = option(False, "Turn every quantizer on and off alone, too, which takes longest.")

    def run(self) -> None:
        path = self._path()
        content = self._report(path) if self.other is None else self._comparison(path, self.other)
        with writing(path), atomic_write(path) as file:
            file.write(content.encode())
        if not self.job.quiet:
            print_written([path])

    def _path(self) -> Path:
        """Where the page goes; raises UsageError if it is none."""
        ends = "comparison.html" if self.other is not None else "report.html"
        path = self.output or Path(f"{Path(self.job.model).stem}.{ends}")
        if path.suffix not in _PAGES:
            raise UsageError(f"'{path}' is not a page: name a file .html, which a browser prints as PDF")
        if self.other is None and Path(self.job.model).suffix in _PAGES:
            raise UsageError(f"'{self.job.model}' is a report, not a model; give two reports to compare them")
        return path

    def _report(self, path: Path) -> str:
        task = start(self.job, [path], calibration=self.calibration, role="the data", purpose="to measure on")
        compiled = task.compile()
        with RichProgress(standard_error()) as progress:
            findings = find(
                compiled,
                task.data,
                is_meaningful=self.job.random_data is None,
                tensors=self.tensors,
                sensitivity=self.sensitivity,
                threads=task.compilation.threads,
                device=task.compilation.device,
                progress=progress,
            )
        made_with = {
            "pipeline": task.compilation.chosen_pipeline().name,
            "calibrated on": _samples(task.compilation.data),
            "measured on": _samples(task.data),
        }
        command = shlex.join(["qc", *click.get_current_context().obj])
        return report_page(findings, self.job.label, command, made_with)

    def _comparison(self, path: Path, other: Path) -> str:
        measuring = {
            "--data": self.job.data,
            "--random-data": self.job.random_data,
            "--calibration": self.calibration,
            "--tensor": self.tensors or None,
            "--sensitivity": self.sensitivity or None,
        }
        models = [name for name in (self.job.model, str(other)) if Path(name).suffix not in _PAGES]
        if models:
            raise UsageError(
                f"'{models[0]}' is not a report; a report is of one model, which qc quantizes itself: "
                f"'qc report {self.job.model} --data DATA', and two such pages are compared"
            )
        refuse_compile_options(self.job, measuring, "and two reports are only compared")
        files = [Path(self.job.model), other]
        check_outputs([path], [InputFile(file, "a report") for file in files])
        a, b = map(read_document, files)
        return comparison_page(a, b, (files[0].stem, files[1].stem))


def _samples(data: object) -> str:
    """How many feeds there are, and where they come from."""
    if not isinstance(data, Data):
        return "no data"
    return data.origin if data.length is None else f"{count(data.length, 'sample')} of {data.origin}"
