"""Pictures between whose numbers others are put, as a device computes them."""

from __future__ import annotations

import math

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op
from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Quantizer

from .device_writer import Writer

# How the places of new numbers are found, and how many times longer a side gets at most, where it is known.
_MODES, _MOST_TIMES = ("half_pixel", "pytorch_half_pixel", "asymmetric"), 4


def write_interpolation(writer: Writer, op: Op, data: Quantizer | None) -> bool:
    """Writes what a Resize makes of neighbors on the grid of its input; whether its arithmetic is known."""
    grid, times = writer.parameters(data), _times_longer(writer, op)
    mode = op.attribute("coordinate_transformation_mode", "half_pixel")
    known = op.attribute("mode", "nearest") == "linear" and mode in _MODES
    if grid is None or times is None or not known or op.attribute("antialias", 0):
        return False
    # Between two numbers there are twice as many places at most.
    share = np.asarray(1 / math.prod(2 * factor for factor in times if factor > 1), np.float32)
    inputs = (writer.rounded.value, *writer.grid, grid[0], writer.constant(share))
    writer.write(writer.rounded.op, "Requantize", inputs, {"arithmetic": Arithmetic.CODES.value})
    return True


def _times_longer(writer: Writer, op: Op) -> list[int] | None:
    """How many times longer each dimension gets; None if one is not known, or not so by a whole number.

    Of scales that are no whole numbers, lengths can be such multiples by rounding: then places differ.
    """
    x = op.inputs[0]
    shapes = (x.type.shape if x is not None else None), writer.rounded.value.type.shape
    times: list[int] = []
    for before, behind in zip(shapes[0] or (), shapes[1] or (), strict=False):
        if not isinstance(before, int) or not isinstance(behind, int) or not before or behind % before:
            return None
        times.append(behind // before)
    scales = fixed_constant([*op.inputs, None, None][2])
    if scales is not None and scales.size and not np.array_equal(scales.numpy(), times):
        return None
    return times if len(times) == 4 and times[:2] == [1, 1] and max(times) <= _MOST_TIMES else None
