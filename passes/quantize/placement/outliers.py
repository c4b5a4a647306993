"""Products of outliers, which passes on the float model took out of others."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.graph import Op, Value
from qc.ir.model import Model

from ...framework.target import Target
from .units import Reason

_REASON = Reason("it multiplies the outliers of a tensor, whose grid would be too coarse")


def mark_outliers(model: Model, outliers: Value) -> None:
    """Asks to leave products of a tensor in float, where the target computes in float as well."""
    model.quant.skip(outliers, _REASON.text)


def products_of_outliers(model: Model, target: Target) -> Iterator[tuple[Op, Reason]]:
    """The products of what was marked, with the reason; none on a target that computes all in integers."""
    if target.default.runs != "float":
        return
    for graph in model.graph.walk():
        for op in graph.ops():
            data = graph.op_inputs(op)[:1]
            if data and data[0] is not None and model.quant.why_not(data[0]) == _REASON.text:
                yield op, _REASON
