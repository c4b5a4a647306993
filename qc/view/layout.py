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

from .coordinates import place_layers
from .ordering import order_layers

LAYER_GAP = 52.0
IN_GAP, OUT_GAP = 22.0, 48.0  # between the ports of a box, if it is wide enough


class Box(NamedTuple):
    """The size of a box in pixels."""

    width: float
    height: float


class Link(NamedTuple):
    """A tensor: the box that makes it, and those that read it, once for every reading."""

    source: int
    targets: tuple[int, ...]


class Station(NamedTuple):
    """A point of a route in one layer, which the route passes from ``top`` to ``bottom``."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Route:
    """The way of a link.

    Attributes:
        trunk: from below the source through each layer that is passed.
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
    for source, targets in links:
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
        bands = self._bands(layers)
        left = min((x[box] - self.widths[box] / 2 for box in range(len(self.boxes))), default=0.0)
        left = min([left, *x])
        x = [one - left for one in x]
        centres = [
            (x[box], (bands[self.layer[box]][0] + bands[self.layer[box]][1]) / 2)
            for box in range(len(self.boxes))
        ]
        width = max((one + self.widths[place] / 2 for place, one in enumerate(x)), default=0.0)
        return Layout(centres, self._routes(x, centres, bands), width, bands[-1][1])

    def _bands(self, layers: list[list[int]]) -> list[tuple[float, float]]:
        """Top and bottom of every layer."""
        bands, top = [], 0.0
        for layer in layers:
            height = max(
                (self.boxes[place].height for place in layer if place < len(self.boxes)), default=0.0
            )
            bands.append((top, top + height))
            top += height + LAYER_GAP
        return bands

    def _routes(
        self, x: list[float], centres: list[tuple[float, float]], bands: list[tuple[float, float]]
    ) -> list[Route]:
        outgoing, incoming = self._ports(x)
        routes = []
        for number, (link, trunk) in enumerate(zip(self.links, self.trunks, strict=True)):
            first = self.layer[link.source]
            bottom = centres[link.source][1] + self.boxes[link.source].height / 2
            stations = [Station(outgoing[number], bottom, bands[first][1])]
            stations += [
                Station(x[place], *bands[first + depth]) for depth, place in enumerate(trunk[1:], start=1)
            ]
            branches = []
            for position, target in enumerate(link.targets):
                top = centres[target][1] - self.boxes[target].height / 2
                end = Station(incoming[number, position], bands[self.layer[target]][0], top)
                branches.append((self.layer[target] - first, end))
            routes.append(Route(stations, branches))
        return routes

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
