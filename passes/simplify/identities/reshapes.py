"""Reshapes of what was reshaped just before."""

from __future__ import annotations

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

_OF_ONE = ("Squeeze", "Unsqueeze")
_RESHAPES = ("Flatten", "Reshape", *_OF_ONE)


def unshaped(op: Op) -> Value | None:
    """The tensor whose numbers an op reshapes that another one had reshaped; None if there was none."""
    made = op.inputs[0] if op.is_type(*_RESHAPES) else None
    before = made.producer if made is not None and made.is_read_once else None
    return before.inputs[0] if before is not None and before.is_type(*_RESHAPES) else None


def is_taken_back(op: Op, source: Value) -> bool:
    """Whether an op gives a tensor the shape that it had.

    One free length follows from the others; several do where only axes of length 1 come and go.
    """
    (between, *_), (result, *_), shape = op.inputs, op.outputs, source.type.shape
    before = between.producer if between is not None else None
    if result is None or shape is None or result.type.shape != shape or before is None:
        return False
    free = [length for length in shape if not isinstance(length, int)]
    keeps_others = op.is_type(*_OF_ONE) and before.is_type(*_OF_ONE) and None not in free
    return len(free) <= 1 or keeps_others


def asks_for_all_lengths(op: Op) -> bool:
    """Whether a Reshape takes no length from its data, but for one that follows from the others."""
    lengths = fixed_constant(op.inputs[1]) if op.is_type("Reshape") and op.num_inputs == 2 else None
    return lengths is not None and bool(lengths.numpy().all())
