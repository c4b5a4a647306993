"""Reshapes to lengths of which one is computed, and follows from the others."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op

_FOLLOWS = -1  # how a Reshape is told that a length follows from the others


def shape_without_computed(op: Op) -> np.ndarray | None:
    """The shape that a Reshape asks for, int64, with -1 for the only length that is computed.

    None if none is, or several, or if another one is 0 or -1 already.
    """
    shape = op.inputs[1] if op.is_type("Reshape") and op.num_inputs == 2 else None
    concat = shape.producer if shape is not None else None
    parts = [value for value in concat.inputs if value] if concat is not None else []
    if concat is None or not concat.is_type("Concat"):
        return None
    computed = [value for value in parts if fixed_constant(value) is None]
    if len(computed) != 1 or computed[0].type.shape != (1,):
        return None
    lengths = [data.numpy() if (data := fixed_constant(value)) else np.array([_FOLLOWS]) for value in parts]
    found = np.concatenate(lengths).astype(np.int64)
    return found if np.count_nonzero(found <= 0) == 1 else None
