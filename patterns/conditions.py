"""What single elements demand of values, constants and attributes."""

from __future__ import annotations

from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef

from .attributes import scalar_of
from .pattern import DEFAULT_TOLERANCE, AnyValue, Constant


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


def equal_attributes(expected: object, found: object) -> bool:
    """Whether attributes agree; a one-element list counts as its element."""
    if isinstance(found, tuple) and len(found) == 1 and not isinstance(expected, tuple):
        found = found[0]
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return _close(found, expected, DEFAULT_TOLERANCE)
    return expected == found


def _close(found: float, expected: float, tolerance: float) -> bool:
    return found == expected or abs(found - expected) <= tolerance * abs(expected)
