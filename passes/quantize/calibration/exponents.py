"""What is raised to a power of e, where a clipped number would be a multiple too small."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import is_grid_preserving, is_parameter, joins_grids
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Graph, Op, Value


def exponents(graph: Graph) -> frozenset[Value]:
    """The tensors that Exp reads, as detectors have it of lengths, and those that they grow with.

    That is through what moves, joins and limits, sums with constants, and products by positive ones. The
    largest number counts most behind an Exp, so a range that leaves it out for the sake of others is bad.
    """
    found: set[Value] = set()
    for op in reversed(scopes_of(graph).ops):
        grows = op.is_type("Exp") or (found.issuperset(_results(op)) and _grows_with_inputs(op))
        if grows and op.outputs:
            read = (value for port, value in enumerate(op.inputs) if not is_parameter(op, port))
            found.update(value.original for value in read if value is not None and value.is_float)
    return frozenset(found)


def _results(op: Op) -> set[Value]:
    return {value.original for value in op.outputs if value is not None}


def _grows_with_inputs(op: Op) -> bool:
    if is_grid_preserving(op) or joins_grids(op) or op.is_type("Clip", "Relu"):
        return True
    numbers = [number for value in op.inputs if (number := constant_numbers(value)) is not None]
    if op.is_type("Mul", "Div"):
        is_positive = len(numbers) == 1 and bool(np.all(numbers[0] > 0))
        return is_positive and not (op.is_type("Div") and constant_numbers(op.inputs[0]) is not None)
    is_difference_of_data = op.is_type("Sub") and constant_numbers(op.inputs[1]) is not None
    return len(numbers) == 1 and (op.is_type("Add", "Max", "Min") or is_difference_of_data)
