"""Softmax and normalizations as a device computes them, row by row."""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op
from qc.ir.quant.spec import Quantizer

from .device_writer import Writer

# The device takes the scale of what a softmax makes to be no smaller, and its zero point to be 0.
_LEAST_STEP = 1 / 256
# Since this opset a softmax is of one axis, before it was of all that follow.
_SOFTMAX_OF_ONE_AXIS = 13


def write_softmax(writer: Writer, op: Op, data: Quantizer | None) -> bool:
    """Writes the softmax of codes; whether its arithmetic is known."""
    x, grid, encoding = op.inputs[0], writer.parameters(data), writer.rounded.quantizer.encoding
    rank = x.type.rank if x is not None else None
    if x is None or grid is None or encoding is None or rank is None:
        return False
    axis = op.attribute("axis", -1)
    of_one_axis = writer.rewriter.model.opset >= _SOFTMAX_OF_ONE_AXIS or axis in (-1, rank - 1)
    fits = int(encoding.zero_point) == 0 and float(encoding.scale) >= _LEAST_STEP * (1 - 1e-6)
    if not of_one_axis or not fits:
        return False
    inputs = (writer.rounded.value, *writer.grid, x, grid[0])
    writer.write(writer.rounded.op, "RequantizeSoftmax", inputs, {"axis": axis})
    return True


def write_normalization(
    writer: Writer, op: Op, data: Quantizer | None, weight: Quantizer | None, centered: bool
) -> bool:
    """Writes the normalization of codes along the last dimension; whether its arithmetic is known."""
    x, gamma, bias = (*op.inputs, None)[:3]
    grid, of_weight = writer.parameters(data), writer.parameters(weight)
    rank = x.type.rank if x is not None else None
    of_last = rank is not None and op.attribute("axis", -1) in (-1, rank - 1)
    if x is None or gamma is None or grid is None or of_weight is None or not of_last:
        return False
    zero, epsilon = (
        writer.constant(np.asarray(number, np.float32)) for number in (0.0, op.attribute("epsilon", 1e-5))
    )
    inputs = (writer.rounded.value, *writer.grid, x, grid[0], gamma, of_weight[0], bias or zero, epsilon)
    writer.write(writer.rounded.op, "RequantizeNormalization", inputs, {"centered": int(centered)})
    return True
