"""Parses the IR text: the same IR again, with data from elsewhere that the text leaves out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto, TensorProto

from ..base.garbage import without_collections
from ..model import Model
from .graph_parser import GraphReader, read_opsets
from .graph_printer import BLANK_FIELDS
from .quantization_parser import QuantizationReader
from .reader import Reader
from .residue import MODEL, read_residue
from .scanner import Scanner
from .storage import DataFile
from .tensors import TensorReader


def parse_model(
    text: str,
    tensors: Mapping[str, TensorProto] | None = None,
    base_dir: Path | None = None,
    data: Path | None = None,
    source: str = "the text",
) -> Model:
    """The IR that :func:`print_model` or :func:`print_parts` printed. Journal and ids are not in a text.

    Args:
        tensors: what the text leaves out, see :class:`Printed`.
        base_dir: the folder that external data among ``tensors`` are relative to.
        data: the file that was written beside the text, if the text says that there is one.
        source: how errors name the text.

    Raises:
        ModelError: the text is not right, with line and column, or data are missing or do not fit.
    """
    scanner = Reader(text, source)
    scanner.expect_word("model")
    origin = ModelProto()
    if scanner.accept_word("ir"):
        origin.ir_version = scanner.integer("a version")
    scanner.expect_word("opset")
    origin.opset_import.extend(read_opsets(scanner))
    blank = _read_blank(scanner)
    file = _read_data_file(scanner, data)
    read_residue(scanner, origin, MODEL)
    model = Model(origin, base_dir if file is None else file.folder)
    data_reader = TensorReader(scanner, tensors or {}, file)
    graphs = GraphReader(model, scanner, data_reader, blank)
    with without_collections(), model.journal.aside():
        graphs.graph(model.graph, None, "", origin.graph)
        while scanner.accept_word("function"):
            start = scanner.position
            key, body = graphs.function(origin.functions.add())
            if key in model.functions:
                raise scanner.problem("this function is defined a second time", start)
            model.functions[key] = body
        QuantizationReader(model, scanner, data_reader, graphs.scopes).read()
    return model


def _read_blank(scanner: Scanner) -> dict[str, str]:
    field, what = re.compile("|".join(BLANK_FIELDS)), f"one of {', '.join(BLANK_FIELDS)}"
    found = scanner.series(lambda: scanner.take(field, what)) if scanner.accept_word("blank") else []
    return dict.fromkeys(found, "")


def _read_data_file(scanner: Scanner, path: Path | None) -> DataFile | None:
    start = scanner.position
    size = scanner.integer("a number of bytes", 0) if scanner.accept_word("data") else 0
    if not size:
        return None
    if path is None:
        raise scanner.problem("the numbers of this text are in a file beside it, which is not given", start)
    file = DataFile(path)
    if file.size != size:
        raise scanner.problem(f"the text belongs to a file of {size} bytes, '{path}' has {file.size}", start)
    return file
