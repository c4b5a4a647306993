"""What single elements demand of values, constants and attributes."""

from __future__ import annotations

from collections.abc import Iterable

from qc.ir.graph import Op, Value
from qc.ir.tensor_ref import TensorRef

from .attributes import scalar_of
from .pattern import DEFAULT_TOLERANCE, AnyValue, Constant

_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# Ops whose result has as many axes as the input with the most of them.
_BROADCASTS = ("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where", *_COMPARISONS)


def accepts_value(element: AnyValue, value: Value) -> bool:
    """Whether a value meets the condition of ``element``."""
    return element.where is None or element.where(value)


def accepts_data(element: Constant, data: TensorRef) -> bool:
    """Whether the data of a constant is what ``element`` describes."""
    if element.number is not None:
        found = scalar_of(data)
        if found is None or not _close(found, element.number, element.tolerance):
            return False
    return element.where is None or element.where(data)


def adds_axes(op: Op, data: TensorRef, operands: Iterable[Value | None]) -> bool:
    """Whether a constant of one element gives the result of an op more axes than any operand has.

    It is no mere number then: a pattern would take what it changes for the function of its input. Operands
    of unknown shape count as such of enough axes.
    """
    if data.size != 1 or not op.is_type(*_BROADCASTS):
        return False
    shapes = [value.type.shape for value in operands if value is not None]
    return bool(shapes) and all(shape is not None and len(shape) < len(data.shape) for shape in shapes)


def equal_attributes(expected: object, found: object) -> bool:
    """Whether attributes agree; a one-element list counts as its element."""
    if isinstance(found, tuple) and len(found) == 1 and not isinstance(expected, tuple):
        found = found[0]
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return _close(found, expected, DEFAULT_TOLERANCE)
    return expected == found


def _close(found: float, expected: float, tolerance: float) -> bool:
    return found == expected or abs(found - expected) <= tolerance * abs(expected)
