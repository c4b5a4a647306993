"""The chart of the page: SQNR of every quantized tensor over the order of the graph. Sizes are in pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from qc.rendering.words import decibels

from .errors import LayerError
from .table import axis_top

_WIDTH = 1150
_LEAST_WIDTH = 700  # a narrower page scrolls
_STEP = 7  # the least distance between neighbors
_LEFT, _RIGHT, _ABOVE, _BELOW = 44, 12, 10, 14
_GRID = 10  # dB between lines


class Mark(NamedTuple):
    """One tensor: where its error in isolation is, and, of what is computed, the cumulative one."""

    title: str
    x: str
    y: str
    cumulative: str | None
    is_constant: bool


class Chart:
    """Where everything is: the tensors from left to right, and dB upwards."""

    height = 320
    left = _LEFT

    def __init__(self, layers: Sequence[LayerError]) -> None:
        needed = _LEFT + _RIGHT + _STEP * len(layers)
        self.width, self.least_width = max(_WIDTH, needed), max(_LEAST_WIDTH, needed)
        self.right = self.width - _RIGHT
        both = (value for layer in layers for value in (layer.isolated_db, layer.cumulative_db))
        values = [value for value in both if value is not None and math.isfinite(value)]
        self._layers = layers
        self._top = axis_top(layers)
        self._bottom = min(_GRID * math.floor(min(values, default=0) / _GRID), self._top - _GRID)
        self._step = (self.right - _LEFT) / max(len(layers), 1)

    def levels(self) -> Iterator[tuple[float, str]]:
        """The lines of the grid: dB, and where."""
        step = _GRID * math.ceil((self._top - self._bottom) / (10 * _GRID))
        level = self._bottom
        while level <= self._top:
            yield level, self._y(level)
            level += step

    def run(self) -> str:
        """The line of the cumulative errors, through what the network computes."""
        return " ".join(f"{mark.x},{mark.cumulative}" for mark in self.marks() if mark.cumulative is not None)

    def marks(self) -> Iterator[Mark]:
        """The marks in the order of the tensors."""
        for index, layer in enumerate(self._layers):
            known = layer.cumulative_db is not None and not layer.is_constant
            cumulative = self._y(layer.cumulative_db) if known and layer.cumulative_db is not None else None
            x = f"{_LEFT + self._step * (index + 0.5):.1f}"
            yield Mark(describe(layer), x, self._y(layer.isolated_db), cumulative, layer.is_constant)

    def _y(self, value: float) -> str:
        """Values above or below the axis are at its end."""
        share = (min(max(value, self._bottom), self._top) - self._bottom) / (self._top - self._bottom)
        return f"{_ABOVE + (1 - share) * (self.height - _ABOVE - _BELOW):.1f}"


def describe(layer: LayerError) -> str:
    """All about one tensor, for a tooltip."""
    end = "read by" if layer.is_constant else "made by"
    cumulative = decibels(layer.cumulative_db) if layer.cumulative_db is not None else "not known"
    lines = (
        layer.tensor,
        f"{end} {layer.op}" if layer.op is not None else "an input",
        f"{layer.spec}, q{layer.quantizer}",
        f"isolated {decibels(layer.isolated_db)}, cumulative {cumulative}",
    )
    return "\n".join(lines)
