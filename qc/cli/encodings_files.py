"""Encodings files, and the models that they belong to."""

from __future__ import annotations

from typing import Any

import qc
from qc.ir.model import Model
from qc.options import option
from qc.passes.encodings import Document, located, read_encodings


def model_option() -> Any:
    """``--model``."""
    return option(None, "The float model, which tells axes, blocks and layers.", metavar="MODEL.onnx")


def lifted(model: str | None) -> Model | None:
    """The model, if one is given."""
    return qc.read_model(model) if model is not None else None


def read_document(file: str, model: Model | None) -> Document:
    """An encodings file; by the names of the model's tensors, if there is one."""
    document = read_encodings(file)
    return located(document, model) if model is not None else document
