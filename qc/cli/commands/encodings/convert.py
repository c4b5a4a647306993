"""Write a file in another version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.options import REQUIRED, argument, option
from qc.passes.encodings import (
    VERSIONS,
    by_layer,
    check_axes,
    converted,
    dump_encodings,
)

from ...command import Command
from ...encodings_files import lifted, model_option, read_document
from ...files import InputFile, check_outputs, writing
from ...output import print_note


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Writes FILE in another version. What that version cannot say is an error that names the tensor.

    Examples:
        qc encodings convert model.encodings --version 2.0.0 -o newer.encodings
    """

    file: str = argument("FILE")
    output: Path = option(REQUIRED, "Where to write.", "-o", metavar="FILE")
    version: str = option(REQUIRED, f"One of {', '.join(VERSIONS)}.", metavar="V", parse=str)
    model: str | None = model_option()
    layout: Literal["tensors", "layers"] | None = option(
        None,
        "By tensor, or by layer as in _torch.encodings.  [default: tensors with --model, else that of FILE]",
    )

    def run(self) -> None:
        inputs = [InputFile(Path(name), "an input") for name in (self.file, self.model) if name is not None]
        check_outputs([self.output], inputs)
        ir = lifted(self.model)
        document = read_document(self.file, ir)
        if self.layout not in (None, document.layout) and ir is None:
            raise UsageError(
                f"only a model tells which tensor belongs to which layer of '{self.file}'; add --model"
            )
        if ir is None and any(record.as_stored for record in document.records):
            print_note("without --model, several scales of a tensor count as those of its channels")
        if ir is not None and not self.version.startswith("2"):
            check_axes(document, ir)
        document = converted(document, self.version)
        if self.layout == "layers" and ir is not None:
            document, unnamed = by_layer(document, ir)
            for name in unnamed:
                print_note(f"'{name}' lies inside a layer, or is unknown to '{self.model}'; left out")
        text = dump_encodings(document)
        with writing(self.output), atomic_write(self.output) as target:
            target.write(text.encode())
