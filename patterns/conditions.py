"""What single elements demand of constants and attributes, and how values are called."""

from __future__ import annotations

from qc.ir.graph import Value

from .attributes import constant_data, scalar_of
from .pattern import DEFAULT_TOLERANCE, AnyValue, Constant

COMMUTATIVE = frozenset(
    (
        "Add",
        "And",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Equal",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Or",
        "Sum",
        "Xor",
    )
)
"""Ops of the standard domain whose inputs may be in any order."""


def refuse_any(element: AnyValue, value: Value) -> str | None:
    """What was expected, if ``element`` does not accept the value."""
    if element.where is None or element.where(value):
        return None
    return f"a value with {_condition(element.where)}"


def refuse_constant(element: Constant, value: Value) -> str | None:
    """What was expected, if the value is not the constant that ``element`` describes."""
    data = constant_data(value)
    if data is None:
        return "a constant"
    if element.number is not None:
        found = scalar_of(data)
        if found is None or not _close(found, element.number, element.tolerance):
            return f"the constant {element.number}"
    if element.where is not None and not element.where(data):
        return f"a constant with {_condition(element.where)}"
    return None


def equal_attributes(expected: object, found: object) -> bool:
    """Whether attributes agree; a one-element list counts as its element."""
    if isinstance(found, tuple) and len(found) == 1 and not isinstance(expected, tuple):
        found = found[0]
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return _close(found, expected, DEFAULT_TOLERANCE)
    return expected == found


def described(value: object) -> str:
    """How a value is called in an explanation: by what computes it and by its name."""
    if not isinstance(value, Value):
        return "no input"
    producer = value.graph.producer(value)
    if producer is not None and not producer.is_type("Constant"):
        return f"{producer.op_type} '{value.name}'"
    data = constant_data(value)
    if data is None:
        return f"the input '{value.name}'"
    content = scalar_of(data)
    suffix = f" = {content:.7g}" if content is not None else ""
    return f"the constant '{value.name}'{suffix}"


def _close(found: float, expected: float, tolerance: float) -> bool:
    return found == expected or abs(found - expected) <= tolerance * abs(expected)


def _condition(test: object) -> str:
    return str(getattr(test, "__name__", "a condition"))
