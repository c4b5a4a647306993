"""Prints the IR: one line for each input, constant, op, region and quantizer, in a stable order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from onnx import TensorProto

from ..base.garbage import without_collections
from ..model import Model
from ..onnx.lower import opset_entries
from .graph_printer import GraphPrinter, as_line, blank_fields, opsets_text
from .quantization import QuantizationPrinter
from .residue import MODEL, residue
from .storage import DataWriter
from .tensors import TensorPrinter


class Printed(NamedTuple):
    """The text of a model.

    Attributes:
        text: the text.
        left_out: the tensors whose data are not in it, by the name that the text has for them.
    """

    text: str
    left_out: dict[str, TensorProto]


def print_model(model: Model) -> str:
    """The text of a model; equal models give equal text. The data of large constants are left out."""
    return print_parts(model).text


def print_parts(model: Model, writer: DataWriter | None = None) -> Printed:
    """The text of a model, and what it leaves out.

    Args:
        writer: takes the data of large constants; then nothing is left out, and the text tells their places.

    Raises:
        ModelError: external data cannot be read; only with a writer.
    """
    with without_collections():
        tensors, blank = TensorPrinter(model.base_dir, writer), blank_fields(model)
        graphs = GraphPrinter(tensors, blank)
        body = [graphs.graph(model.graph)]
        body += (graphs.function(key, function) for key, function in model.functions.items())
        body += QuantizationPrinter(model, graphs.scopes, tensors).lines()
        head = _header(model, blank, writer)
        return Printed("\n".join([*head, *body]) + "\n", tensors.left_out)


def _header(model: Model, blank: Iterable[str], writer: DataWriter | None) -> list[str]:
    words = ["model"]
    if model.origin.HasField("ir_version"):
        words.append(f"ir {model.origin.ir_version}")
    words.append(f"opset {opsets_text(opset_entries(model))}")
    if blank:
        words.append(f"blank {', '.join(blank)}")
    if writer is not None:
        words.append(f"data {writer.size}")
    return [" ".join(words), *as_line(residue(model.origin, MODEL))]
