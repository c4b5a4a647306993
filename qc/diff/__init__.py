"""Compares two models: what was added, removed and changed, whatever it is called now."""

from __future__ import annotations

from qc.ir.base.garbage import without_collections
from qc.ir.model import Model

from .constants import constant_differences
from .edit_text import edit_differences
from .interface import interface_differences
from .op_changes import op_differences
from .pairs import compared
from .quantizers import quantizer_differences
from .regions import region_differences
from .result import GROUPS, ChangeCount, Difference, ModelDiff
from .values import name_differences, type_differences

__all__ = ["GROUPS", "ChangeCount", "Difference", "ModelDiff", "diff_models"]


def diff_models(a: Model, b: Model) -> ModelDiff:
    """Compares two models, quantizers and regions included.

    A tensor that is quantized and dequantized is told as quantized, be it by ops or by a quantizer of the
    IR. The order of ops, and who made the model, do not count.

    Raises:
        ModelError: a constant cannot be read.
    """
    parts = (
        interface_differences,
        edit_differences,
        op_differences,
        constant_differences,
        quantizer_differences,
        region_differences,
        type_differences,
        name_differences,
    )
    with without_collections():
        comparison = compared(a, b)
        found = [difference for part in parts for difference in part(comparison)]
    return ModelDiff(tuple(sorted(found, key=lambda difference: GROUPS.index(difference.group))))
