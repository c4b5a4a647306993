"""Draws pictures as SVG. Sizes are in pixels; colours are classes of the page's style sheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

from qc.ir.graph import Region

from . import layout
from .boxes import draw_box, key_of, pixels, size_of
from .columns import TURN
from .layout import Route, Station
from .palette import format_class
from .picture import Box, Line, Picture
from .words import short_shape

MARGIN = 48.0
_HALO = 10.0
_STRAIGHT = 20.0  # below a box, beside what is told about the tensor
_APPROACH = 22.0  # above a box or a place in a layer, beside the names of regions
_CHARACTER = 6.7

Centre = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """A picture as SVG, and its size in pixels."""

    svg: Markup
    width: float
    height: float


def draw(picture: Picture, regions: Mapping[str, str]) -> Drawing:
    """Lays out and draws a picture.

    Args:
        regions: the class of each name of a region.
    """
    leaving = Counter(line.source for line in picture.lines)
    sizes = [size_of(box, leaving[box]) for box in picture.boxes]
    found = layout.layout(sizes, picture.links())
    width, height = found.width + 2 * MARGIN, found.height + 2 * MARGIN
    root = Element(
        "svg",
        {
            "viewBox": f"0 0 {pixels(width)} {pixels(height)}",
            "width": pixels(width),
            "height": pixels(height),
        },
    )
    canvas = SubElement(root, "g", {"class": "canvas"})
    shifted = SubElement(canvas, "g", {"transform": f"translate({pixels(MARGIN)},{pixels(MARGIN)})"})
    halos, lines, labels, boxes = (SubElement(shifted, "g") for _ in range(4))
    for halo in _Halos(picture, sizes, found).by_region():
        halo.draw(halos, labels, regions[halo.region.name])
    sides = _label_sides(picture.lines, found.routes)
    for line, route in zip(picture.lines, found.routes, strict=True):
        _draw_line(lines, line, route)
        if line.source.kind != "reference":
            _draw_label(labels, line, route.trunk[0], sides[line])
    for box, size, centre in zip(picture.boxes, sizes, found.centres, strict=True):
        draw_box(boxes, box, size, centre)
    return Drawing(Markup(ElementTree.tostring(root, "unicode")), width, height)


# -- lines --------------------------------------------------------------------------------------------------


def _draw_line(parent: Element, line: Line, route: Route) -> None:
    """The trunk, and a branch with a head for every user."""
    whole = line.format
    group = SubElement(parent, "g", {"class": f"line {format_class(whole)}", "data-card": key_of(line.value)})
    reached = max(depth for depth, _ in route.branches)
    trunk = _trunk(route.trunk[:reached])
    SubElement(
        group, "path", {"class": "hit", "d": trunk + "".join(_branch(route, *b) for b in route.branches)}
    )
    SubElement(group, "path", {"class": "stroke", "d": trunk})
    for end, (depth, station) in zip(line.ends, route.branches, strict=True):
        colour = format_class(end.format)
        SubElement(group, "path", {"class": f"stroke {colour}", "d": _branch(route, depth, station)})
        at = f"translate({pixels(station.x)},{pixels(station.bottom)})"
        SubElement(group, "path", {"class": f"head {colour}", "d": "M-4,-7L4,-7L0,0z", "transform": at})


def _label_sides(lines: Sequence[Line], routes: Sequence[Route]) -> dict[Line, int]:
    """On which side of each line there is room for its shape: 1 on the right, -1 on the left, 0 on none."""
    leaving: dict[Box, list[tuple[float, Line]]] = {}
    for line, route in zip(lines, routes, strict=True):
        leaving.setdefault(line.source, []).append((route.trunk[0].x, line))
    sides = {}
    for found in leaving.values():
        ordered = [line for _, line in sorted(found, key=lambda pair: pair[0])]
        sides.update(dict.fromkeys(ordered, 0))
        sides[ordered[0]] = -1
        sides[ordered[-1]] = 1
    return sides


def _draw_label(parent: Element, line: Line, start: Station, side: int) -> None:
    """The format on the line, the shape beside it."""
    width, y = 0.0, pixels(start.top + 14)
    style = f"label {format_class(line.format)}"
    group = SubElement(parent, "g", {"class": style, "data-card": key_of(line.value)})
    if line.format:
        width = len(line.format) * _CHARACTER + 10
        chip = SubElement(group, "g", {"class": "chip"})
        place = {"x": pixels(start.x - width / 2), "y": pixels(start.top + 3), "width": pixels(width)}
        SubElement(chip, "rect", {**place, "height": "15", "rx": "7.5"})
        SubElement(chip, "text", {"x": pixels(start.x), "y": y}).text = line.format
    if side:
        x = pixels(start.x + side * (6 + width / 2))
        text = SubElement(group, "text", {"class": "shape", "x": x, "y": y})
        text.set("text-anchor", "start" if side > 0 else "end")
        text.text = short_shape(line.value.type.shape)


def _trunk(stations: Sequence[Station]) -> str:
    first = stations[0]
    path = f"M{_at(first.x, first.top)}L{_at(first.x, first.bottom)}"
    for position, (before, station) in enumerate(pairwise(stations)):
        path += f"{_curve(before, station, straight=not position)}L{_at(station.x, station.bottom)}"
    return path


def _branch(route: Route, depth: int, end: Station) -> str:
    """From the last station that is shared to the user."""
    last = route.trunk[depth - 1]
    path = f"M{_at(last.x, last.bottom)}{_curve(last, end, straight=depth == 1)}"
    return f"{path}L{_at(end.x, end.bottom)}"


def _curve(start: Station, end: Station, straight: bool) -> str:
    """From one layer into the next; at first straight, if it begins at a box."""
    if end.goes_up:
        return _turn(start.x, end.x, end.top, TURN)
    if start.goes_up:
        return _turn(start.x, end.x, start.bottom, -TURN) + f"L{_at(end.x, end.top)}"
    top = start.bottom + (_STRAIGHT if straight else 0)
    if start.x == end.x:
        return f"L{_at(end.x, end.top)}"
    bottom = end.top - _APPROACH
    middle = (top + bottom) / 2
    corners = f"{_at(start.x, middle)} {_at(end.x, middle)} {_at(end.x, bottom)}"
    return f"L{_at(start.x, top)}C{corners}L{_at(end.x, end.top)}"


def _turn(start: float, end: float, y: float, depth: float) -> str:
    """Down by ``depth``, to the right, and up again; the other way round if it is negative."""
    level, radius = y + depth, min(TURN, abs(end - start) / 2)
    side = radius if end > start else -radius
    before = f"L{_at(start, y)}Q{_at(start, level)} {_at(start + side, level)}"
    return f"{before}L{_at(end - side, level)}Q{_at(end, level)} {_at(end, y)}"


def _at(x: float, y: float) -> str:
    return f"{pixels(x)},{pixels(y)}"


# -- halos --------------------------------------------------------------------------------------------------


@dataclass
class _Halo:
    """What a region is drawn as: a shape around its boxes and along the lines between them."""

    region: Region
    boxes: list[tuple[float, float, float, float, float]]  # the last: the x of the first line from above
    paths: list[str]

    def draw(self, shapes: Element, labels: Element, style: str) -> None:
        """Draws the shape, and the name of the region above its first box."""
        shape = SubElement(shapes, "g", {"class": f"halo {style}"})
        for path in self.paths:
            SubElement(shape, "path", {"d": path})
        for left, top, width, height, _ in self.boxes:
            numbers = {"x": left, "y": top, "width": width, "height": height, "rx": 14.0}
            SubElement(shape, "rect", {name: pixels(number) for name, number in numbers.items()})
        _, top, _, _, first_line = min(self.boxes, key=lambda box: (box[1], box[0]))
        end = {"x": pixels(first_line - 8), "y": pixels(top - 4)}
        SubElement(labels, "text", {"class": "region", **end}).text = self.region.name


class _Halos:
    def __init__(self, picture: Picture, sizes: Sequence[layout.Box], found: layout.Layout) -> None:
        self._halos: dict[Region, _Halo] = {}
        first_lines = _first_lines(picture.lines, found.routes)
        for box, size, centre in zip(picture.boxes, sizes, found.centres, strict=True):
            if box.region is not None:
                halo = self._halos.setdefault(box.region, _Halo(box.region, [], []))
                halo.boxes.append((*_around(size, centre), first_lines.get(box, centre[0])))
        for line, route in zip(picture.lines, found.routes, strict=True):
            self._add_line(line, route)

    def by_region(self) -> Iterable[_Halo]:
        """The halos in the order of the graph."""
        return self._halos.values()

    def _add_line(self, line: Line, route: Route) -> None:
        region = line.source.region
        inside = [
            branch for end, branch in zip(line.ends, route.branches, strict=True) if end.box.region is region
        ]
        if region is not None and inside:
            trunk = _trunk(route.trunk[: max(depth for depth, _ in inside)])
            self._halos[region].paths.append(trunk + "".join(_branch(route, *branch) for branch in inside))


def _first_lines(lines: Sequence[Line], routes: Sequence[Route]) -> dict[Box, float]:
    """The x of the leftmost line that reaches each box."""
    found: dict[Box, float] = {}
    for line, route in zip(lines, routes, strict=True):
        for end, (_, station) in zip(line.ends, route.branches, strict=True):
            found[end.box] = min(station.x, found.get(end.box, station.x))
    return found


def _around(size: layout.Box, centre: Centre) -> tuple[float, float, float, float]:
    left, top = centre[0] - size.width / 2 - _HALO, centre[1] - size.height / 2 - _HALO
    return left, top, size.width + 2 * _HALO, size.height + 2 * _HALO
