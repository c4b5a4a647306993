"""The chart of the page: SQNR of every quantized tensor over the order of the graph, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from qc.evaluation_report import decibels
from qc.report import printable

from .errors import LayerError
from .table import axis_top

_HEIGHT = 320
_WIDTH = 1150
_LEAST_WIDTH = 700  # a narrower page scrolls
_STEP = 7  # the least distance between neighbors
_LEFT, _RIGHT, _ABOVE, _BELOW = 44, 12, 10, 14
_GRID = 10  # dB between lines
_RADIUS = 3.2


def chart(layers: Sequence[LayerError]) -> str:
    """The chart of tensors in the order of the graph; marks lead to the rows ``#tensor-N``."""
    scale = _Scale(layers)
    svg = Element("svg", {"viewBox": f"0 0 {scale.width} {_HEIGHT}", "width": f"{scale.least_width}"})
    svg.set("role", "img")
    svg.set("aria-label", "SQNR of every quantized tensor in dB")
    for level in scale.levels():
        y = f"{scale.y(level):.1f}"
        SubElement(
            svg,
            "line",
            {"class": "grid", "x1": f"{_LEFT}", "x2": f"{scale.width - _RIGHT}", "y1": y, "y2": y},
        )
        SubElement(
            svg, "text", {"x": f"{_LEFT - 8}", "y": y, "dy": "4", "text-anchor": "end"}
        ).text = f"{level:g}"
    _add_run(svg, layers, scale)
    for index, layer in enumerate(layers):
        _add_mark(svg, layer, index, scale)
    return tostring(svg, encoding="unicode")


def describe(layer: LayerError) -> str:
    """All about one tensor, for a tooltip."""
    end = "read by" if layer.is_constant else "made by"
    together = decibels(layer.cumulative_db) if layer.cumulative_db is not None else "not known"
    lines = (
        layer.tensor,
        f"{end} {layer.op}" if layer.op is not None else "an input",
        f"{layer.spec}, q{layer.quantizer}",
        f"isolated {decibels(layer.isolated_db)}, cumulative {together}",
    )
    return "\n".join(map(printable, lines))


class _Scale:
    """From the number of a tensor and dB to the picture."""

    def __init__(self, layers: Sequence[LayerError]) -> None:
        needed = _LEFT + _RIGHT + _STEP * len(layers)
        self.width, self.least_width = max(_WIDTH, needed), max(_LEAST_WIDTH, needed)
        values = [
            value
            for layer in layers
            for value in (layer.isolated_db, layer.cumulative_db)
            if value is not None and math.isfinite(value)
        ]
        self._top = axis_top(layers)
        self._bottom = min(_GRID * math.floor(min(values, default=0) / _GRID), self._top - _GRID)
        self._step = (self.width - _LEFT - _RIGHT) / max(len(layers), 1)

    def x(self, index: int) -> float:
        return _LEFT + self._step * (index + 0.5)

    def y(self, value: float) -> float:
        """Values above or below the axis are at its end."""
        share = (min(max(value, self._bottom), self._top) - self._bottom) / (self._top - self._bottom)
        return _ABOVE + (1 - share) * (_HEIGHT - _ABOVE - _BELOW)

    def levels(self) -> Iterator[float]:
        step = _GRID * math.ceil((self._top - self._bottom) / (10 * _GRID))
        level = self._bottom
        while level <= self._top:
            yield level
            level += step


def _add_run(svg: Element, layers: Sequence[LayerError], scale: _Scale) -> None:
    """The line of the cumulative errors, through what the network computes."""
    points = [
        f"{scale.x(index):.1f},{scale.y(layer.cumulative_db):.1f}"
        for index, layer in enumerate(layers)
        if layer.cumulative_db is not None and not layer.is_constant
    ]
    SubElement(svg, "polyline", {"class": "run", "points": " ".join(points)})


def _add_mark(svg: Element, layer: LayerError, index: int, scale: _Scale) -> None:
    link = SubElement(svg, "a", {"href": f"#tensor-{index}"})
    SubElement(link, "title").text = describe(layer)
    x = scale.x(index)
    if layer.cumulative_db is not None and not layer.is_constant:
        spot = {"cx": f"{x:.1f}", "cy": f"{scale.y(layer.cumulative_db):.1f}", "r": "2"}
        SubElement(link, "circle", {"class": "mark cumulative", **spot})
    y = scale.y(layer.isolated_db)
    if layer.is_constant:
        side = f"{2 * _RADIUS - 1:.1f}"
        corner = {"x": f"{x - _RADIUS:.1f}", "y": f"{y - _RADIUS:.1f}", "width": side, "height": side}
        SubElement(link, "rect", {"class": "mark constant", **corner})
    else:
        SubElement(link, "circle", {"class": "mark", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{_RADIUS}"})
