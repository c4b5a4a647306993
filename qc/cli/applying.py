"""``qc encodings apply`` and ``strip``: grids into a model, and out of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import click

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.ir.onnx.lift import load_model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.save import stage_model
from qc.passes import PassContext, Pipeline
from qc.passes.encodings import VERSIONS
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.lower.to_encodings import ToEncodings
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.quantize.import_qdq import ImportQdq
from qc.passes.quantize.load_encodings import LoadEncodings
from qc.report.words import count

from .files import FileType, InputFile, WordType, check_outputs, model_files, writing
from .output import print_note

_BIAS_HELP = "Biases that FILE does not list: as they are, or in 32-bit integers.  [default: float]"


@click.command("apply", short_help="Make a QDQ model of a float model and a file.")
@click.argument("file", metavar="FILE", type=WordType())
@click.argument("model", metavar="MODEL.onnx", type=WordType())
@click.option("-o", "--output", metavar="OUT.onnx", type=FileType(), required=True, help="Where to write.")
@click.option(
    "--only",
    type=click.Choice(["all", "parameters", "activations"]),
    default="all",
    help="Which tensors to take grids for.  [default: all]",
)
@click.option("--partial", is_flag=True, help="Pass over listed tensors that the model lacks.")
@click.option("--bias", type=click.Choice(["float", "int32"]), default="float", help=_BIAS_HELP)
@click.option("--target", metavar="T", type=WordType(), help="For which device.  [default: ort-cpu]")
def apply_command(
    file: str,
    model: str,
    output: Path,
    only: Literal["all", "parameters", "activations"],
    partial: bool,
    bias: Literal["float", "int32"],
    target: str | None,
) -> None:
    """Rounds the tensors of MODEL.onnx to the grids of FILE, and no others.

    FILE is an encodings file of any version. Weights are stored in codes.
    """
    inputs = [
        *model_files(model, load_model(model), "the model"),
        InputFile(Path(file), "the encodings file"),
    ]
    check_outputs([output], inputs)
    load = LoadEncodings(file=file, only=only, unknown="ignore" if partial else "error", bias=bias)
    steps = Pipeline([load, Calibrate(), InsertQdq()])  # only biases are left to calibrate
    compiled = qc.compile(model, steps, target=target, allow_unquantized=True)
    if not compiled.coverage.quantized:
        raise UsageError(f"'{file}' has no grid for '{model}': nothing would be quantized")
    for note in compiled.notes:
        print_note(note)
    with writing(output):
        compiled.save(output)


@click.command("strip", short_help="Take the grids out of a QDQ model.")
@click.argument("model", metavar="MODEL.onnx", type=WordType())
@click.option("-o", "--output", metavar="OUT.onnx", type=FileType(), required=True, help="Where to write.")
@click.option("--encodings", metavar="FILE", type=FileType(), help="Write the grids to this file.")
@click.option(
    "--version",
    metavar="V",
    type=click.Choice(VERSIONS),
    default="2.0.0",
    help=f"Of the encodings file: one of {', '.join(VERSIONS)}.  [default: 2.0.0]",
)
def strip_command(model: str, output: Path, encodings: Path | None, version: str) -> None:
    """Writes the float model that MODEL.onnx, a QDQ model whoever made it, was made of.

    Its weights are the numbers that the codes stand for: what was rounded stays rounded.
    """
    check_outputs([output, encodings], model_files(model, load_model(model), "the model"))
    ir, context = qc.read_model(model), PassContext()
    ImportQdq().run(ir, context)
    if not ir.quant.sites():
        raise UsageError(f"'{model}' is no QDQ model: it has no grid that could be taken out")
    left = _rounding_ops(ir)
    if left:
        context.notes.append(f"{count(left, 'quantize or dequantize op')} stay: they come in no such pair")
    if encodings is not None:
        ToEncodings(version=version).run(ir, context)  # type: ignore[arg-type]
    for note in context.notes:
        print_note(note)
    with ExitStack() as stack:
        if encodings is not None:
            text = str(context.artifacts["encodings"].payload)
            stack.enter_context(writing(encodings))
            stack.enter_context(atomic_write(encodings)).write(text.encode())
        stack.enter_context(writing(output))
        stage_model(stack, lower(ir), output, ir.base_dir)


def _rounding_ops(model: Model) -> int:
    names = ("QuantizeLinear", "DequantizeLinear")
    return sum(op.op_type in names for graph in model.graphs() for op in graph.ops())
