"""Outliers, which passes on the float model took out of tensors, and what computes with them in float."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import traits
from qc.ir.graph import Op, Value
from qc.ir.model import Model

from ...framework.target import Target
from .unit import Reason

_OUTLIERS = Reason("it multiplies the outliers of a tensor, whose grid would be too coarse")
_PROBABILITIES = Reason(
    "it multiplies probabilities, most of which are below a step of a grid that reaches to 1"
)
_WITH_OUTLIERS = Reason("a grid of a tensor with its outliers would be too coarse")
_OP_TYPES = {_OUTLIERS: "MatMul", _PROBABILITIES: "MatMul", _WITH_OUTLIERS: "Mul"}
_REASONS = {reason.text: reason for reason in _OP_TYPES}


def mark_outliers(model: Model, data: Value, outliers: Value) -> None:
    """Asks to leave in float, where the target computes in float as well, what reads outliers.

    Args:
        data: A tensor with outliers, which a Mul by zeros and ones leaves out.
        outliers: Its outliers, which a MatMul multiplies.
    """
    model.quant.skip(data, _WITH_OUTLIERS.text)
    model.quant.skip(outliers, _OUTLIERS.text)


def mark_probabilities(model: Model, asked_by: str = "") -> None:
    """Asks the same for products of data by what Softmax made, maybe moved, masked or limited since then."""
    for graph in model.graph.walk():
        probabilities: set[Value] = set()
        for op in graph.ops():
            read = enumerate(op.inputs)
            known = {port: value for port, value in read if value is not None and value in probabilities}
            if op.is_type("MatMul"):
                for value in known.values() if _is_of_data(op) else ():
                    model.quant.skip(value, _PROBABILITIES.text, asked_by)
            elif op.is_type("Softmax") or (known and op.is_type("Dropout")) or _keeps_order(op, known):
                probabilities.update(value for value in op.outputs if value is not None)


def _keeps_order(op: Op, ports: Collection[int]) -> bool:
    return any(port in traits(op).ordered for port in ports)


def products_of_outliers(model: Model, target: Target) -> Iterator[tuple[Op, Reason]]:
    """The products of what was marked, with the reason; none on a target that computes all in integers."""
    if target.default.runs != "float":
        return
    for graph in model.graph.walk():
        for op in graph.ops():
            for value in op.inputs:
                reason = _REASONS.get(model.quant.why_not(value) or "") if value is not None else None
                if reason is not None and op.is_type(_OP_TYPES[reason]) and _takes_out(op, reason):
                    yield op, reason


def _is_of_data(op: Op) -> bool:
    return all(value and constant_data(value) is None for value in op.inputs)


def _takes_out(op: Op, reason: Reason) -> bool:
    """Whether an op is what the reason was given for, which others that read the tensor are not.

    A Mul by a constant takes outliers out; probabilities are multiplied by data.
    """
    if reason is _PROBABILITIES:
        return _is_of_data(op)
    return reason is not _WITH_OUTLIERS or any(
        value is not None and value.original.const is not None for value in op.inputs
    )
