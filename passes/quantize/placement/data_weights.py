"""Convolutions and products by weights that are data, in formats in which a target takes none."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.quant.formats import Format

from ...framework.target import Target
from .unit import Reason


def weighed_by_data(model: Model, target: Target, format: Format) -> Iterator[tuple[Op, Reason]]:
    """The ops that a target runs with data of a format only by constant weights, and which have others."""
    for op in model.ops():
        rule = target.rule_for(op.op_type, op.domain)
        if rule.bars_data_weight(op, format):
            text = f"the target does not run it in {format} with a weight that is data"
            yield op, Reason(text, rule.asked_by)
