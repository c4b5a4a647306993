"""Which ops only move numbers."""

from __future__ import annotations

from qc.ir.facts.op_table import GRID_PRESERVING


def _is_grid_preserving_op(op_type: str, domain: str = "") -> bool:
    """Whether the result of such an op holds numbers of its input alone, so that it has the same grid."""
    return not domain and op_type in GRID_PRESERVING
