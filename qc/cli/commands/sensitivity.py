"""Rank tensors by what rounding them does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from qc.options import option
from qc.progress import RichProgress
from qc.rendering.words import finite, printable
from qc.sensitivity import Sensitivity, measure_sensitivity, sensitivity_heading, sensitivity_table

from ..command import Command
from ..files import write_json
from ..jobs import start
from ..options import Job, calibration_option, json_option
from ..output import print_note, print_written, standard_error, standard_output


@dataclass(frozen=True, kw_only=True)
class SensitivityCommand(Command):
    """Turns every quantizer of MODEL.onnx on alone, and off alone, and ranks them by what that does.

    Activations and weights alike, in one session. The numbers are SQNR at the worst output, in dB, against
    the float model: "alone" with no other quantizer, the most harmful first; "without" with all others.
    Biases are those of the float model, not corrected ones.

    Examples:
        qc sensitivity model.onnx --data calibration.npz --top 10
    """

    if_quantized = "'qc sensitivity FLOAT.onnx' is for the float model that it was made of"

    job: Job
    calibration: str | None = calibration_option()
    samples: Annotated[int, Ge(1)] | None = option(
        None, "Samples to run at most.  [default: as few as tell the SQNR within 1 dB]", metavar="N"
    )
    bits: Annotated[int, Ge(2), Le(16)] | None = option(
        None,
        "Round integers to N bits over the same ranges, instead of to those of the pipeline.",
        metavar="N",
    )
    top: int = option(20, "Quantizers to show.", metavar="N")
    json_file: Path | None = json_option()

    def run(self) -> None:
        task = start(self.job, [self.json_file], calibration=self.calibration, purpose="to run on")
        compiled = task.compile()
        with RichProgress(standard_error()) as progress:
            result = measure_sensitivity(
                compiled,
                task.data,
                samples=self.samples,
                bits=self.bits,
                threads=task.compilation.threads,
                device=task.compilation.device,
                progress=progress,
            )
        if self.json_file is not None:
            write_json(self.json_file, finite(asdict(result)))
        _show(self.job, result, self.top)
        if not self.job.quiet:
            print_written([self.json_file])
        for note in result.saturated:
            print_note(note)


def _show(job: Job, result: Sensitivity, top: int) -> None:
    rows = result.quantizers[:top]
    heading = f"{job.label}: {sensitivity_heading(result, len(rows))}"
    standard_output().show(printable(heading), "", sensitivity_table(rows))
