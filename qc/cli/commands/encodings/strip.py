"""Take the grids out of a QDQ model."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import qc
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.ir.onnx.load import load_model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.save import stage_model
from qc.options import REQUIRED, argument, option
from qc.passes import PassContext
from qc.passes.encodings import VERSIONS
from qc.passes.lower.to_encodings import ToEncodings
from qc.passes.quantize.import_qdq import ImportQdq
from qc.rendering.words import count

from ...command import Command
from ...files import check_model_output, check_outputs, model_files, writing
from ...output import print_note


@dataclass(frozen=True, kw_only=True)
class Strip(Command):
    """Writes the float model that MODEL.onnx, a QDQ model whoever made it, was made of.

    Its weights are the numbers that the codes stand for: what was rounded stays rounded.

    Examples:
        qc encodings strip model.q.onnx -o float.onnx --encodings model.encodings
    """

    model: str = argument("MODEL.onnx")
    output: Path = option(REQUIRED, "Where to write.", "-o", metavar="OUT.onnx")
    encodings: Path | None = option(None, "Write the grids to this file.", metavar="FILE")
    version: Literal[VERSIONS] = option(  # type: ignore[valid-type]
        "2.0.0", f"Of the encodings file: one of {', '.join(VERSIONS)}.", metavar="V"
    )

    def run(self) -> None:
        inputs = model_files(self.model, load_model(self.model), "the model")
        check_outputs([self.output, self.encodings], inputs)
        check_model_output(self.output)
        ir, context = qc.read_model(self.model), PassContext()
        ImportQdq().run(ir, context)
        if not ir.quant.sites():
            raise UsageError(f"'{self.model}' is no QDQ model: it has no grid that could be taken out")
        left = _rounding_ops(ir)
        if left:
            context.notes.append(
                f"{count(left, 'quantize or dequantize op')} stay: they come in no such pair"
            )
        if self.encodings is not None:
            ToEncodings(version=self.version, moved=False).run(ir, context)
        for note in context.notes:
            print_note(note)
        with ExitStack() as stack:
            if self.encodings is not None:
                text = str(context.artifacts["encodings"].payload)
                stack.enter_context(writing(self.encodings))
                stack.enter_context(atomic_write(self.encodings)).write(text.encode())
            stack.enter_context(writing(self.output))
            stage_model(stack, lower(ir), self.output, ir.base_dir)


def _rounding_ops(model: Model) -> int:
    names = ("QuantizeLinear", "DequantizeLinear")
    return sum(op.op_type in names for op in model.ops())
