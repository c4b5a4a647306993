"""Averages of windows as a device computes them: as a pooling, in several of them, or as a convolution."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from qc.ir.graph import Op, Value
from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Quantizer
from qc.ir.value_type import ValueType

from .device_writer import Writer

# The weights of a convolution that averages, and the lengths of its windows.
_WEIGHT, _CONVOLVED = 32, (3, 5, 7)
# The window whose border may not count, and how wide that is at most.
_BORDERED, _MOST_BORDER = (3, 3), 1


class Window(NamedTuple):
    """What an average is of.

    Attributes:
        kernel, strides, picture: lengths, for rows and columns.
        pads: the widths of the border: those before rows and columns, then those behind.
        counted: whether numbers in the border count; there are none if it has no width.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    picture: tuple[int, ...]
    pads: tuple[int, ...]
    counted: bool

    @property
    def counts(self) -> np.ndarray:
        """How many numbers of the picture are in the window at each place of the result."""
        return np.outer(*(self._counts_along(axis) for axis in range(len(self.picture))))

    def _counts_along(self, axis: int) -> np.ndarray:
        length, kernel = self.picture[axis], self.kernel[axis]
        before, behind = self.pads[axis :: len(self.picture)]
        starts = np.arange(-before, length + behind - kernel + 1, self.strides[axis])
        return np.minimum(starts + kernel, length) - np.maximum(starts, 0)


def write_average(writer: Writer, op: Op, data: Quantizer | None) -> bool:
    """Writes the averages of codes; whether their arithmetic is known."""
    grid, window, x = writer.parameters(data), _window(op), op.inputs[0]
    if grid is None or window is None or x is None:
        return False
    lengths = _lengths(window)
    if lengths:
        _write_in_steps(writer, op, x, lengths, grid[0])
        return True
    found = _arithmetic(window)
    if found is None:
        return False
    arithmetic, share = found
    inputs = (writer.rounded.value, *writer.grid, grid[0], writer.constant(share))
    attributes: dict[str, object] = {"arithmetic": arithmetic.value, "axis": -max(share.ndim, 1)}
    writer.write(writer.rounded.op, "Requantize", inputs, attributes)
    return True


def _window(op: Op) -> Window | None:
    """None if the device is not known to compute such ones."""
    x = op.inputs[0]
    shape = (x.type.shape if x is not None else None) or ()
    picture = tuple(length for length in shape[2:] if isinstance(length, int))
    padded = op.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    plain = padded and not op.attribute("ceil_mode", 0) and max(op.attribute("dilations", [1])) == 1
    if len(shape) != 4 or len(picture) != 2 or not plain:
        return None
    strides, pads = op.attribute("strides", [1, 1]), op.attribute("pads", [0] * 4)
    counted = bool(op.attribute("count_include_pad", 0)) or not any(pads)
    return Window(tuple(op.attribute("kernel_shape")), tuple(strides), picture, tuple(pads), counted)


def _arithmetic(window: Window) -> tuple[Arithmetic, np.ndarray] | None:
    """How sums become codes, and what one is worth in them as part of a step; None if it is not known."""
    count, bordered = math.prod(window.kernel), any(window.pads)
    if not window.counted:
        even = window.strides in ((1, 1), (2, 2)) and max(window.pads) <= _MOST_BORDER
        known = window.kernel == _BORDERED and even and min(window.picture) > _MOST_BORDER
        return (Arithmetic.HALVES, _share(window.counts)) if known else None
    if not bordered and window.kernel == window.picture:
        return Arithmetic.CODES, _share(count)
    if not bordered and window.kernel == window.strides:
        by_two = window.kernel == (2, 2)
        known = by_two or any(length % 2 for length in window.kernel)
        return (Arithmetic.HALVES if by_two else Arithmetic.CODES, _share(count)) if known else None
    kinds = {(1, 1): Arithmetic.MATRIX, (2, 2): Arithmetic.VECTOR}
    square = window.kernel in {(length, length) for length in _CONVOLVED}
    return (kinds[window.strides], _share(count * _WEIGHT)) if square and window.strides in kinds else None


def _share(counts: int | np.ndarray) -> np.ndarray:
    return np.asarray(np.float32(1) / np.asarray(counts, np.float32))


def _lengths(window: Window) -> list[int]:
    """The windows by which a device averages one of another even length, one after another."""
    length = window.kernel[0]
    square = window.kernel == (length, length) == window.strides and not any(window.pads)
    divided = not any(rest % length for rest in window.picture) and window.picture != window.kernel
    twos = (length & -length).bit_length() - 1
    odd = [length >> twos] if length >> twos > 1 else []
    return [*odd, *[2] * twos] if square and divided and twos and length > 2 else []


def _write_in_steps(writer: Writer, op: Op, x: Value, lengths: list[int], scale: Value) -> None:
    """Writes an average as several, all of them on the grid of the result."""
    shape = x.type.shape or ()
    for length in lengths:
        shape = (*shape[:2], *(side // length for side in shape[2:] if isinstance(side, int)))
        type, kernel = ValueType(x.type.elem_type, shape), [length] * 2
        mean = writer.made("AveragePool", (x,), type, {"kernel_shape": kernel, "strides": kernel}, domain="")
        arithmetic = Arithmetic.HALVES if length == 2 else Arithmetic.CODES
        inputs = (mean, *writer.grid, scale, writer.constant(_share(length * length)))
        x = writer.made("Requantize", inputs, type, {"arithmetic": arithmetic.value})
        scale = writer.grid[0]
    writer.rewriter.set_input(writer.rounded.op, 0, x)
    if not writer.rounded.value.is_read:
        writer.rewriter.erase_op(op)
