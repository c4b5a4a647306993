"""The grids of tensors that hold no other numbers than a quantized one, such as the result of a Reshape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_table import GRID_JOINING, GRID_PRESERVING
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import FloatFormat
from qc.ir.quant.spec import PerTensor, Quantizer
from qc.ir.quant_table import QuantTable, Site

# Of what these choose from, or limit, no number is new either.
_CHOOSING = GRID_PRESERVING | GRID_JOINING | {"Clip", "Max", "Min", "Pad", "Where"}


def place_moved(model: Model) -> None:
    """Gives tensors without a grid that of others with the same numbers, as AIMET lists them in files.

    What moves or chooses hands the one grid of all its inputs to its results, and that of its results to an
    input that nothing else reads. That changes no number. Ops inside of regions are left alone.
    """
    ops = [
        op
        for graph in model.graph.walk()
        for op in graph.ops()
        if not op.domain and op.op_type in _CHOOSING and op.region is None
    ]
    for op in (*ops, *reversed(ops)):
        for value, quantizer in _moved(model.quant, op):
            if not model.quant.touches(value.original):
                model.quant.place(Site(value.original), quantizer, f"the numbers that {op.label} moves")


def _moved(table: QuantTable, op: Op) -> Iterable[tuple[Value, Quantizer]]:
    """The tensors around an op that may have the grid of its results, or of its inputs."""
    inputs, results = _floats(op.inputs), _floats(op.outputs)
    behind = _common_grid(table, results)
    if behind is not None:
        return [(value, behind) for value in inputs if _is_its_alone(value.original)]
    data = inputs[:1] if op.is_type("Pad") else inputs
    ahead = _common_grid(table, data)
    if ahead is None or not all(_is_in_range(value, ahead) for value in inputs[len(data) :]):
        return []
    return [(value, ahead) for value in results]


def _floats(values: Sequence[Value | None]) -> list[Value]:
    return [value for value in values if value is not None and value.is_float]


def _is_its_alone(value: Value) -> bool:
    """Whether one op reads a tensor and nobody else, and it is no constant with infinities."""
    if not value.is_read_once:
        return False
    return value.const is None or bool(np.isfinite(value.const.extremes()).all())


def _is_in_range(value: Value, quantizer: Quantizer) -> bool:
    """Whether a constant that is padded with lies within a grid; -infinity in front of a MaxPool does not."""
    data, encoding = constant_data(value), quantizer.encoding
    if data is None or encoding is None:
        return False
    low, high = data.extremes()
    return bool(encoding.minimum <= low and high <= encoding.maximum)


def _common_grid(table: QuantTable, values: Sequence[Value]) -> Quantizer | None:
    """The one grid with one scale that all of these have; None if there is no such grid."""
    held = [table.of_value(value) for value in values]
    first = held[0] if held else None
    if first is None or first.encoding is None or not isinstance(first.spec.granularity, PerTensor):
        return None
    if first.spec.derived or (isinstance(first.spec.format, FloatFormat) and not first.spec.format.scaled):
        return None
    for other in held:
        if other is None or other.encoding is None or not other.encoding.equals(first.encoding):
            return None
    return first
