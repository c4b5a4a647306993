"""Check a file against the model it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

import qc
from qc.ir.errors import DemandError, UsageError
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.model import Model
from qc.options import argument
from qc.passes.encodings import (
    Document,
    encoding_of,
)
from qc.rendering.words import count, printable

from ...command import Command
from ...encodings_files import read_document
from ...output import standard_output


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Checks that every tensor of FILE is a float tensor of MODEL, and that its scales fit it.

    Examples:
        qc encodings check model.encodings model.onnx
    """

    file: str = argument("FILE")
    model: str = argument("MODEL.onnx")

    def run(self) -> None:
        ir = qc.read_model(self.model)
        document = read_document(self.file, ir)
        problems = list(_problems(document, ir))
        console = standard_output()
        console.show(*map(Text, map(printable, problems)), wrap=False)
        if problems:
            at_fault = count(len(problems), "tensor")
            raise DemandError(f"'{self.file}' does not belong to '{self.model}': {at_fault} at fault")
        console.show(Text(f"{count(len(document.records), 'encoding')}, all of them fit the model"))


def _problems(document: Document, model: Model) -> Iterator[str]:
    values = tensors_by_name(model)
    for record in document.records:
        value = values.get(record.name)
        if value is None:
            yield f"'{record.name}': the model has no such tensor"
        elif value.type.elem_type and not value.is_float:
            yield f"'{record.name}': it is {value.type}, not a float tensor"
        else:
            try:
                encoding_of(record, value.const.shape if value.const is not None else (), document.source)
            except UsageError as error:
                yield str(error)
