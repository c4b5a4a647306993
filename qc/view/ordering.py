"""Orders the places of each layer so that few links cross."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

Neighbours = Sequence[Sequence[int]]

_SWEEPS = 12


def order_layers(layers: list[list[int]], above: Neighbours, below: Neighbours) -> None:
    """Orders the layers in place, by sweeps that sort each layer by the barycentres of its neighbours.

    Args:
        layers: the places of each layer; their order is where the search begins.
        above, below: the neighbours of each place in the layers before and after its own.
    """
    best = [list(layer) for layer in layers]
    fewest = _crossings(layers, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        positions = positions_of(layers)
        for layer in layers if down else reversed(layers):
            _sort(layer, above if down else below, positions)
        crossings = _crossings(layers, below)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def positions_of(layers: list[list[int]]) -> dict[int, int]:
    """The position of every place in its layer."""
    return {place: position for layer in layers for position, place in enumerate(layer)}


def _sort(layer: list[int], neighbours: Neighbours, positions: dict[int, int]) -> None:
    """Sorts a layer by the barycentres; places without neighbours stay where they are."""
    keys = {
        place: sum(positions[other] for other in neighbours[place]) / len(neighbours[place])
        for place in layer
        if neighbours[place]
    }
    movable = iter(sorted(keys, key=lambda place: (keys[place], positions[place])))
    layer[:] = [next(movable) if place in keys else place for place in layer]
    positions.update((place, position) for position, place in enumerate(layer))


def _crossings(layers: list[list[int]], below: Neighbours) -> int:
    """The number of pairs of links that cross: inversions, counted layer by layer."""
    positions = positions_of(layers)
    total = 0
    for layer in layers:
        seen: list[int] = []
        for place in layer:
            ends = sorted(positions[other] for other in below[place])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
