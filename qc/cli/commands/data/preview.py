"""Show the first samples in numbers, and draw them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.onnx.load import load_model
from qc.options import REQUIRED, argument, option
from qc.rendering.preview import preview_page, preview_table
from qc.rendering.words import count
from qc.runtime import load_data, model_inputs

from ...command import Command
from ...files import check_outputs, data_files, model_files, writing
from ...output import print_note, print_written, standard_output
from ...preparing import Preparing

MOST_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Preview(Command):
    """Reads the first samples as MODEL.onnx gets them, and shows shapes, types and ranges.

    With -o they are drawn, too: pictures, curves and token ids on one page for the browser. What was prepared
    wrongly is often seen at once: colors, sizes, and ranges that the model was not trained on.

    Examples:
        qc data preview model.onnx --data photos --preset imagenet -o preview.html
    """

    model: str = argument("MODEL.onnx")
    data: str = option(REQUIRED, "Data to look at, as for qc itself.", metavar="SRC")
    preparing: Preparing
    samples: Annotated[int, Ge(1), Le(MOST_SAMPLES)] = option(16, "Samples to read.", metavar="N")
    output: Path | None = option(None, "Write a page with the samples drawn.", "-o", metavar="FILE.html")

    def run(self) -> None:
        proto = load_model(self.model)
        files = [*model_files(self.model, proto, "the input model"), *data_files(self.data, "the data")]
        check_outputs([self.output], files)
        if self.output is not None and self.output.suffix != ".html":
            raise UsageError(f"-o {self.output}: samples are drawn on a page, which is written as .html")
        data = load_data(self.preparing.of(self.data), model_inputs(proto))
        feeds = list(islice(data, self.samples))
        of = "" if data.length is None else f" of {data.length:,}"
        heading = f"{data.origin}: {count(len(feeds), 'sample')}{of}"
        standard_output().show(heading, "", preview_table(feeds))
        if data.unused:
            print_note(f"the model has no input for {', '.join(data.unused)}")
        if self.output is not None:
            page = preview_page(f"{self.data} for {Path(self.model).name}", data, feeds)
            with writing(self.output), atomic_write(self.output) as file:
                file.write(page.encode())
            print_written([self.output])
