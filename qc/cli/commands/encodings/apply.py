"""Make a QDQ model of a float model and a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import qc
from qc.ir.errors import UsageError
from qc.ir.onnx.load import load_model
from qc.options import REQUIRED, argument, option
from qc.passes import Pipeline
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.quantize.load_encodings import LoadEncodings

from ...command import Command
from ...files import InputFile, check_model_output, check_outputs, model_files, writing
from ...output import print_note


@dataclass(frozen=True, kw_only=True)
class Apply(Command):
    """Rounds the tensors of MODEL.onnx to the grids of FILE, and no others.

    FILE is an encodings file of any version. Weights are stored in codes.

    Examples:
        qc encodings apply model.encodings model.onnx -o model.q.onnx
    """

    file: str = argument("FILE")
    model: str = argument("MODEL.onnx")
    output: Path = option(REQUIRED, "Where to write.", "-o", metavar="OUT.onnx")
    only: Literal["all", "parameters", "activations"] = option("all", "Which tensors to take grids for.")
    partial: bool = option(False, "Pass over listed tensors that the model lacks.")
    bias: Literal["float", "int32"] = option(
        "float", "Biases that FILE does not list: as they are, or in 32-bit integers."
    )
    target: str | None = option(None, "For which device.  [default: this processor]", metavar="T")

    def run(self) -> None:
        inputs = [
            *model_files(self.model, load_model(self.model), "the model"),
            InputFile(Path(self.file), "the encodings file"),
        ]
        check_outputs([self.output], inputs)
        check_model_output(self.output)
        unknown: Literal["ignore", "error"] = "ignore" if self.partial else "error"
        load = LoadEncodings(file=self.file, only=self.only, unknown=unknown, bias=self.bias)
        steps = Pipeline([load, Calibrate(), InsertQdq()])  # only biases are left to calibrate
        compiled = qc.compile(self.model, steps, target=self.target, allow_unquantized=True)
        if not compiled.coverage.formats:
            raise UsageError(f"'{self.file}' has no grid for '{self.model}': nothing would be quantized")
        for note in compiled.notes:
            print_note(note)
        with writing(self.output):
            compiled.save(self.output)
