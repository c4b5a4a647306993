"""``qc print`` and ``qc parse``: a model as text, and the text as a model again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import qc
from qc.ir.onnx.lower import lower
from qc.ir.onnx.save import save_model
from qc.ir.text import data_path, load_text, print_model, save_text
from qc.ir.verify import verify_input
from qc.report.words import count

from .deciding import compile_decisions, compiles
from .files import FileType, InputFile, WordType, check_outputs, model_files, writing
from .options import Job, JobCommand, chosen, job_options
from .output import print_note, print_written


@click.command("print", cls=JobCommand, short_help="Print a model as text.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="Write the text there, and the weights beside it into FILE.data.  [default: print, without weights]",
)
def print_command(output: Path | None, **given: Any) -> None:
    """Prints MODEL.onnx as text, which 'qc parse' reads again.

    The model is printed as it is. With a pipeline, passes, a target or data it is compiled first, and printed
    with its regions and quantizers.
    """
    job = chosen(Job, given)
    pipeline = job.chosen_pipeline() if compiles(job) else None
    outputs = [] if output is None else [output, data_path(output)]
    check_outputs(outputs, job.inputs(job.read(), pipeline, "the calibration data"))
    model = qc.read_model(job.model) if pipeline is None else compile_decisions(job, pipeline).ir
    if output is None:
        sys.stdout.write(print_model(model))
        return
    with writing(output):
        written = save_text(model, output)
    if not job.quiet:
        print_written(written)


@click.command("parse", short_help="Turn the text of a model into a model again.")
@click.argument("text", metavar="TEXT", type=WordType())
@click.option(
    "-o", "--output", metavar="FILE", type=FileType(), required=True, help="Where to write the model."
)
@click.option(
    "--weights",
    metavar="MODEL.onnx",
    type=WordType(),
    help="The model that a text without weights was printed from.",
)
@click.option("-q", "--quiet", is_flag=True, help="Tell nothing but warnings and errors.")
def parse_command(text: str, output: Path, weights: str | None, quiet: bool) -> None:
    """Reads TEXT, which 'qc print' wrote, and writes the ONNX model again."""
    inputs = [InputFile(Path(text), "the text"), InputFile(data_path(Path(text)), "the data of the text")]
    original = qc.read_model(weights) if weights is not None else None
    if weights is not None and original is not None:
        inputs += model_files(weights, original.origin, "the model that the weights come from")
    check_outputs([output, output.with_name(f"{output.name}.data")], inputs)
    model = load_text(text, original)
    verify_input(model)
    with writing(output):
        written = save_model(lower(model), output, model.base_dir)
    quantizers = model.quant.quantizers()
    if quantizers:
        print_note(
            f"an ONNX model has no quantizers: left out the {count(len(quantizers), 'quantizer')} of the text"
        )
    if not quiet:
        print_written(written)
