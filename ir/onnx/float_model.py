"""The float model of one that is quantized."""

from __future__ import annotations

from onnx import ModelProto

from ..model import Model
from ..rewriter import Rewriter
from .lower import lower


def lower_float(model: Model) -> ModelProto:
    """The graph without quantizers, and without what passes changed in constants for their sake."""
    rewriter = Rewriter(model)
    with rewriter.trial():
        rewriter.restore_floats()
        return lower(model)
