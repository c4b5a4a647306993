"""Whole numbers that are floats for a while: places and lengths, which a grid would make others of."""

from __future__ import annotations

from onnx import TensorProto

from qc.ir.analysis import CONSTANTS, STRUCTURE, TYPES, analysis
from qc.ir.facts.op_traits import traits
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Graph, Op, Value

_INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})


@analysis(STRUCTURE, TYPES, CONSTANTS)
def counts(graph: Graph) -> frozenset[Value]:
    """Floats that are computed from integers and constants alone, and made integers of again.

    TensorFlow's slices are computed so, as are the lengths that are left behind strides. What sums products
    is no such computation.
    """
    scopes = scopes_of(graph)
    counted: set[Value] = set()
    for op in scopes.ops:
        if _counts(op, counted):
            counted.update(value for value in op.graph.op_outputs(op) if value is not None and value.is_float)
    found: set[Value] = set()
    for op in reversed(scopes.ops):
        made = op.graph.op_outputs(op)
        if _makes_integers(op) or any(value in found for value in made):
            read = (value.original for value in op.graph.op_inputs(op) if value is not None)
            found.update(value for value in read if value in counted)
    return frozenset(found)


def _counts(op: Op, counted: set[Value]) -> bool:
    """Whether an op computes from integers, or floats that are counts, and from constants alone."""
    if traits(op).product or op.subgraphs:
        return False
    read = [value.original for value in op.graph.op_inputs(op) if value is not None]
    data = [value for value in read if value.const is None]
    if op.is_type("Cast"):
        return any(value in counted or value.type.elem_type in _INTEGERS for value in data)
    floats = [value for value in data if value.is_float]
    return bool(floats) and all(value in counted for value in floats)


def _makes_integers(op: Op) -> bool:
    results = op.graph.op_outputs(op)
    return op.is_type("Cast") and any(
        value is not None and value.type.elem_type in _INTEGERS for value in results
    )
