"""Turn the text of a model into a model again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import qc
from qc.ir.onnx.lower import lower
from qc.ir.onnx.save import save_model
from qc.ir.text import data_path, load_text
from qc.ir.verifier import verify_input
from qc.options import REQUIRED, argument, option
from qc.rendering.words import count

from ..command import Command
from ..files import InputFile, check_model_output, check_outputs, model_files, writing
from ..options import quiet_option
from ..output import print_note, print_written


@dataclass(frozen=True, kw_only=True)
class Parse(Command):
    """Reads TEXT, which 'qc print' wrote, and writes the ONNX model again.

    Examples:
        qc parse model.txt -o again.onnx
    """

    text: str = argument("TEXT")
    output: Path = option(REQUIRED, "Where to write the model.", "-o", metavar="FILE")
    weights: str | None = option(
        None, "The model that a text without weights was printed from.", metavar="MODEL.onnx"
    )
    quiet: bool = quiet_option()

    def run(self) -> None:
        text = Path(self.text)
        inputs = [InputFile(text, "the text"), InputFile(data_path(text), "the data of the text")]
        original = qc.read_model(self.weights) if self.weights is not None else None
        if self.weights is not None and original is not None:
            inputs += model_files(self.weights, original.origin, "the model that the weights come from")
        check_outputs([self.output, self.output.with_name(f"{self.output.name}.data")], inputs)
        check_model_output(self.output)
        model = load_text(self.text, original)
        verify_input(model)
        with writing(self.output):
            written = save_model(lower(model), self.output, model.base_dir)
        quantizers = model.quant.quantizers()
        if quantizers:
            left_out = count(len(quantizers), "quantizer")
            print_note(f"an ONNX model has no quantizers: left out the {left_out} of the text")
        if not self.quiet:
            print_written(written)
