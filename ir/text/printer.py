"""Prints the IR: one line for each input, constant, op, region and quantizer, in a stable order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnx import TensorProto

from ..base.garbage import without_collections
from ..model import Model
from ..onnx.lower import opset_entries
from . import said
from .carried import notes
from .declarations import about_line
from .graph_printer import GraphPrinter, opsets_text
from .nodes import blank_fields
from .quantization import QuantizationPrinter
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
        return _printed(model, writer)


def _printed(model: Model, writer: DataWriter | None) -> Printed:
    tensors = TensorPrinter(model.base_dir, writer)
    blank = blank_fields(model)
    graphs = GraphPrinter(tensors, blank)
    body = [graphs.graph(model.graph)]
    body += (graphs.function(key, function) for key, function in model.functions.items())
    body += QuantizationPrinter(model, graphs.scopes, tensors).lines()
    head = _header(model, blank, writer)
    return Printed("\n".join([*head, *body]) + "\n", tensors.left_out)


def _header(model: Model, blank: frozenset[str], writer: DataWriter | None) -> Iterator[str]:
    words = ["model"]
    if model.origin.HasField("ir_version"):
        words.append(f"ir {model.origin.ir_version}")
    words.append(f"opset {opsets_text(opset_entries(model))}")
    if blank:
        words.append(f"blank {', '.join(sorted(blank))}")
    if writer is not None:
        words.append(f"data {writer.size}")
    yield " ".join(words)
    yield from about_line("model", notes(model.origin, said.MODEL))
