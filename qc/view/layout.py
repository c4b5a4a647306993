"""Places the boxes of a directed graph in layers, from top to bottom, and routes the links between them.

The method is that of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures", 1981: boxes get layers along the longest paths, links that pass a layer get a place of their own
in it, layers are ordered by the barycentres of neighbours, and places are moved as near to their neighbours
as the order allows. Readers of one tensor share a trunk, from which a branch leads to each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .columns import Columns, columns_of
from .coordinates import place_layers
from .ordering import order_layers

LAYER_GAP = 58.0
IN_GAP, OUT_GAP = 22.0, 48.0  # between the ports of a box, if it is wide enough


class Box(NamedTuple):
    """The size of a box in pixels."""

    width: float
    height: float


class Link(NamedTuple):
    """A tensor: the box that makes it, and those that read it, once for every reading.

    A column ends where links of little weight pass.
    """

    source: int
    targets: tuple[int, ...]
    weight: int = 1


class Station(NamedTuple):
    """A point of a route in one layer, which the route passes from ``top`` to ``bottom``.

    Between two columns a route goes up: there ``top`` is below ``bottom``.
    """

    x: float
    top: float
    bottom: float

    @property
    def goes_up(self) -> bool:
        """Whether it leads up to the next column, which is farther than numbers are inexact."""
        return self.top > self.bottom + 1


@dataclass(frozen=True)
class Route:
    """The way of a link.

    Attributes:
        trunk: from below the source through each layer that is passed, and up to the next column.
        branches: for every target, how many stations of the trunk it follows, and the station it ends at.
    """

    trunk: list[Station]
    branches: list[tuple[int, Station]]


@dataclass(frozen=True)
class Layout:
    """Where everything is.

    Attributes:
        centres: (x, y) of the middle of every box.
        routes: by link.
        width, height: of the whole drawing, which begins at (0, 0).
    """

    centres: list[tuple[float, float]]
    routes: list[Route]
    width: float
    height: float


def layout(boxes: Sequence[Box], links: Sequence[Link]) -> Layout:
    """Places boxes; their order must be topological, and decides where nothing else does."""
    return _Drawing(boxes, links).layout()


def layers_of(count: int, links: Sequence[Link]) -> list[int]:
    """The layer of every box: below all it depends on, and then as near to its users as costs nothing."""
    producers: list[list[int]] = [[] for _ in range(count)]
    users: list[list[int]] = [[] for _ in range(count)]
    outgoing = [0] * count
    for source, targets, _ in links:
        outgoing[source] += 1
        for target in dict.fromkeys(targets):
            producers[target].append(source)
            users[source].append(target)
    layers = [0] * count
    for box in range(count):
        layers[box] = max((layers[producer] + 1 for producer in producers[box]), default=0)
    for box in reversed(range(count)):
        if users[box] and outgoing[box] > len(producers[box]):
            layers[box] = min(layers[user] for user in users[box]) - 1
    return layers


class _Drawing:
    """Boxes and the places of passing links, all of them called places; a box is the place of its number."""

    def __init__(self, boxes: Sequence[Box], links: Sequence[Link]) -> None:
        self.boxes, self.links = boxes, links
        self.layer = layers_of(len(boxes), links)
        self.widths = [box.width for box in boxes]
        self.above: list[list[int]] = [[] for _ in boxes]
        self.below: list[list[int]] = [[] for _ in boxes]
        self.trunks = [self._add_trunk(link) for link in links]
        self.heights: list[float] = []  # of the layers

    def _add_trunk(self, link: Link) -> list[int]:
        """The places of a link: its source, then one in each layer above its last target."""
        first = self.layer[link.source]
        last = max((self.layer[target] for target in link.targets), default=first)
        trunk = [link.source]
        for layer in range(first + 1, last):
            self.layer.append(layer)
            self.widths.append(0.0)
            self.above.append([])
            self.below.append([])
            self._connect(trunk[-1], len(self.layer) - 1)
            trunk.append(len(self.layer) - 1)
        for target in link.targets:
            self._connect(trunk[self.layer[target] - first - 1], target)
        return trunk

    def _connect(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def layout(self) -> Layout:
        layers: list[list[int]] = [[] for _ in range(max(self.layer, default=0) + 1)]
        for place, layer in enumerate(self.layer):
            layers[layer].append(place)
        order_layers(layers, self.above, self.below)
        x = place_layers(layers, self.above, self.below, self.widths, len(self.boxes))
        self.heights = [self._height(layer) for layer in layers]
        ends = [self._ends(layer, x) for layer in layers]
        passing = self._passing([1 for _ in self.links])
        weights = self._passing([link.weight for link in self.links])
        columns = columns_of(self.heights, ends, passing, weights, LAYER_GAP)
        x = [one + columns.shifts[self.layer[place]] for place, one in enumerate(x)]
        middles = [top + height / 2 for top, height in zip(columns.tops, self.heights, strict=True)]
        centres = [(x[box], middles[self.layer[box]]) for box in range(len(self.boxes))]
        return Layout(centres, self._routes(x, centres, columns), columns.width, columns.height)

    def _height(self, layer: list[int]) -> float:
        return max((self.boxes[place].height for place in layer if place < len(self.boxes)), default=0.0)

    def _ends(self, layer: list[int], x: list[float]) -> tuple[float, float]:
        """The least and the greatest x of what is in a layer."""
        left = min((x[place] - self.widths[place] / 2 for place in layer), default=0.0)
        return left, max((x[place] + self.widths[place] / 2 for place in layer), default=0.0)

    def _passing(self, weights: Sequence[int]) -> list[int]:
        """The weight of the links that lead from each layer to later ones."""
        passing = [0] * len(self.heights)
        for link, trunk, weight in zip(self.links, self.trunks, weights, strict=True):
            for place in trunk if link.targets else ():
                passing[self.layer[place]] += weight
        return passing

    def _routes(self, x: list[float], centres: list[tuple[float, float]], columns: Columns) -> list[Route]:
        outgoing, incoming = self._ports(x)
        turns = self._turns(x, outgoing, columns)
        routes = []
        for number, (link, trunk) in enumerate(zip(self.links, self.trunks, strict=True)):
            first = self.layer[link.source]
            stations: list[Station] = []
            for place in trunk:
                layer = self.layer[place]
                top = columns.tops[layer]
                station = Station(x[place], top, top + self.heights[layer])
                if place == link.source:
                    bottom = centres[place][1] + self.boxes[place].height / 2
                    station = Station(outgoing[number], bottom, station.bottom)
                stations += [station, *turns.get((number, layer), ())]
            branches = []
            for position, target in enumerate(link.targets):
                last = self.layer[target]
                top = centres[target][1] - self.boxes[target].height / 2
                end = Station(incoming[number, position], columns.tops[last], top)
                turned = sum((number, layer) in turns for layer in columns.gutters if layer < last)
                branches.append((last - first + turned, end))
            routes.append(Route(stations, branches))
        return routes

    def _turns(
        self, x: list[float], outgoing: list[float], columns: Columns
    ) -> dict[tuple[int, int], tuple[Station]]:
        """The ways up to the next column, by link and by the last layer of a column."""
        leaving: dict[int, list[tuple[float, int]]] = {layer: [] for layer in columns.gutters}
        for number, (link, trunk) in enumerate(zip(self.links, self.trunks, strict=True)):
            for place in trunk if link.targets else ():
                if self.layer[place] in leaving:
                    at = outgoing[number] if place == link.source else x[place]
                    leaving[self.layer[place]].append((at, number))
        return {
            (number, layer): (Station(*columns.gutters[layer].way(position)),)
            for layer, found in leaving.items()
            for position, (_, number) in enumerate(sorted(found, reverse=True))
        }

    def _ports(self, x: list[float]) -> tuple[list[float], dict[tuple[int, int], float]]:
        """Where links leave and reach their boxes: side by side, in the order of where they come from."""
        leaving: list[list[tuple[float, int]]] = [[] for _ in self.boxes]
        reaching: list[list[tuple[float, int, int]]] = [[] for _ in self.boxes]
        for number, (link, trunk) in enumerate(zip(self.links, self.trunks, strict=True)):
            next_places = [*trunk[1:2], *link.targets]
            leaving[link.source].append((x[next_places[0]] if next_places else 0.0, number))
            for position, target in enumerate(link.targets):
                before = trunk[self.layer[target] - self.layer[link.source] - 1]
                reaching[target].append((x[before], number, position))
        outgoing = [0.0] * len(self.links)
        incoming = {}
        for box, links_out in enumerate(leaving):
            for (_, number), at in zip(
                sorted(links_out), self._spread(box, x, len(links_out), OUT_GAP), strict=True
            ):
                outgoing[number] = at
        for box, links_in in enumerate(reaching):
            for (_, number, position), at in zip(
                sorted(links_in), self._spread(box, x, len(links_in), IN_GAP), strict=True
            ):
                incoming[number, position] = at
        return outgoing, incoming

    def _spread(self, box: int, x: list[float], count: int, gap: float) -> list[float]:
        gap = min(gap, self.widths[box] * 0.7 / max(count - 1, 1))
        return [x[box] + gap * (position - (count - 1) / 2) for position in range(count)]
