"""``qc sensitivity MODEL.onnx``: which quantizers harm the outputs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from qc.ir.errors import UsageError
from qc.progress import RichProgress
from qc.report.table import Column, Table, text
from qc.report.words import count, decibels, finite, printable
from qc.runtime import load_data
from qc.sensitivity import QuantizerSensitivity, Sensitivity, measure_sensitivity

from .candidates import compile_job
from .files import check_outputs, data_files, write_json
from .option_types import CountType
from .options import Job, JobCommand, calibration_option, chosen, job_options, json_option
from .output import standard_error, standard_output


@click.command("sensitivity", cls=JobCommand, short_help="Rank tensors by what rounding them does.")
@job_options
@calibration_option
@click.option(
    "--samples", metavar="N", type=CountType(), default=4, show_default=True, help="Samples to run at most."
)
@click.option(
    "--bits",
    metavar="N",
    type=CountType(2, 16),
    help="Round integers to N bits over the same ranges, instead of to those of the pipeline.",
)
@click.option(
    "--top", metavar="N", type=CountType(), default=20, show_default=True, help="Quantizers to show."
)
@json_option
def sensitivity_command(
    calibration: str | None, samples: int, bits: int | None, top: int, json_file: Path | None, **given: Any
) -> None:
    """Turns every quantizer of MODEL.onnx on alone, and off alone, and ranks them by what that does.

    Activations and weights alike, in one session. The numbers are SQNR at the worst output, in dB, against
    the model with all quantizers off: "alone" with no other quantizer, the most harmful first; "without" with
    all others.
    """
    job = chosen(Job, given)
    pipeline = job.chosen_pipeline()
    proto = job.read()
    inputs = [*job.inputs(proto, pipeline, "the data"), *data_files(calibration, "the calibration data")]
    check_outputs([json_file], inputs)
    data = job.feeds(proto)
    if data is None:
        raise UsageError("there is no data to run on; give it with --data, or --random-data to try out")
    with RichProgress(standard_error()) as progress:
        calibrated_on = data if calibration is None else load_data(calibration, data.inputs)
        compiled = compile_job(job, pipeline, calibrated_on, progress)
        result = measure_sensitivity(
            compiled,
            data,
            samples=samples,
            bits=bits,
            threads=job.threads,
            device=job.device,
            progress=progress,
        )
    if json_file is not None:
        write_json(json_file, finite(asdict(result)))
    _show(job, result, top)


def _show(job: Job, result: Sensitivity, top: int) -> None:
    rows = result.quantizers[:top]
    heading = (
        f"{job.label}: all quantizers on, {decibels(result.whole_db)} on {count(result.feeds, 'sample')}; "
        f"the {len(rows)} of {count(len(result.quantizers), 'quantizer')} that harm most"
    )
    standard_output().show(printable(heading), "", _table(rows))


def _table(rows: tuple[QuantizerSensitivity, ...]) -> Table:
    numbers = (Column("alone", decibels), Column("without", decibels))
    table = Table((text(""), text("tensor"), text("format"), *numbers))
    for row in rows:
        table.add(row.quantizer, ", ".join(row.tensors), row.format, row.alone_db, row.without_db)
    return table
