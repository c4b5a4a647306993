"""Finds the x of the places of ordered layers: long links become straight, boxes stand below their producers.

U. Brandes and B. Köpf, "Fast and simple horizontal coordinate assignment", 2001: places are joined with the
median of their neighbours to vertical blocks, which are then packed. This is done from above and from below,
to the left and to the right; the result is in the middle of the four. The time is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .ordering import Neighbours, positions_of

BOX_GAP = 28.0
_LINE_GAP = 22.0  # between two passing links

Layers = list[list[int]]


def place_layers(
    layers: Layers, above: Neighbours, below: Neighbours, widths: Sequence[float], boxes: int
) -> list[float]:
    """The x of the middle of every place.

    Args:
        layers: the places of each layer from left to right.
        above, below: the neighbours of each place in the layers before and after its own.
        widths: of the places; those from number ``boxes`` on are passing links.
    """
    crossed = _crossed(layers, above, boxes)
    below = [_next_place(place, lower, boxes) for place, lower in enumerate(below)]
    found = []
    for vertical in (layers, layers[::-1]):
        neighbours = above if vertical is layers else below
        for mirrored in (False, True):
            ordered = [layer[::-1] for layer in vertical] if mirrored else vertical
            root = _blocks(ordered, neighbours, crossed)
            x = _packed(ordered, root, widths, boxes)
            found.append([-one for one in x] if mirrored else x)
    return _middle(found, widths)


def _next_place(place: int, lower: Sequence[int], boxes: int) -> Sequence[int]:
    """The neighbours below; of a passing link only where it passes on, if it does."""
    passing = [other for other in lower if other >= boxes] if place >= boxes else []
    return passing or lower


def _crossed(layers: Layers, above: Neighbours, boxes: int) -> set[tuple[int, int]]:
    """The connections that cross a passing link, which is to be straight."""
    crossed = set()
    for upper, lower in pairwise(layers):
        position = {place: number for number, place in enumerate(upper)}
        left, start = -1, 0
        for number, place in enumerate(lower):
            passing = next((other for other in above[place] if place >= boxes and other >= boxes), None)
            if passing is None and number < len(lower) - 1:
                continue
            right = len(upper) if passing is None else position[passing]
            for scanned in lower[start : number + 1]:
                for other in above[scanned]:
                    inner = scanned >= boxes and other >= boxes
                    if not inner and not left <= position[other] <= right:
                        crossed.add((other, scanned))
            left, start = right, number + 1
    return crossed


def _blocks(layers: Layers, neighbours: Neighbours, crossed: set[tuple[int, int]]) -> list[int]:
    """Joins each place with a median of its neighbours in the layer before; the first place of each block."""
    positions = positions_of(layers)
    root = list(range(len(positions)))
    taken: set[int] = set()
    for layer in layers:
        last = -1
        for place in layer:
            near = sorted(dict.fromkeys(neighbours[place]), key=positions.__getitem__)
            for other in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                free = root[place] == place and other not in taken and positions[other] > last
                if free and (other, place) not in crossed and (place, other) not in crossed:
                    root[place] = root[other]
                    taken.add(other)
                    last = positions[other]
    return root


def _packed(layers: Layers, root: list[int], widths: Sequence[float], boxes: int) -> list[float]:
    """The x of every place: blocks as far left as they can be, then right where there is room."""
    after: dict[int, dict[int, float]] = {}
    waiting = dict.fromkeys(root, 0)
    for layer in layers:
        for one, other in pairwise(layer):
            gap = _LINE_GAP if one >= boxes and other >= boxes else BOX_GAP
            apart = (widths[one] + widths[other]) / 2 + gap
            blocks = after.setdefault(root[one], {})
            if root[other] not in blocks:
                waiting[root[other]] += 1
            blocks[root[other]] = max(apart, blocks.get(root[other], 0.0))
    order = [block for block, count in waiting.items() if not count]
    x = dict.fromkeys(order, 0.0)
    for block in order:
        for other, apart in after.get(block, {}).items():
            x[other] = max(x.get(other, 0.0), x[block] + apart)
            waiting[other] -= 1
            if not waiting[other]:
                order.append(other)
    for block in reversed(order):
        rooms = [x[other] - apart for other, apart in after.get(block, {}).items()]
        x[block] = max(x[block], min(rooms, default=x[block]))
    return [x[block] for block in root]


def _middle(found: list[list[float]], widths: Sequence[float]) -> list[float]:
    """The mean of the two middle ones of four, after aligning all with the narrowest."""
    ends = [
        (
            min(a - w / 2 for a, w in zip(x, widths, strict=True)),
            max(a + w / 2 for a, w in zip(x, widths, strict=True)),
        )
        for x in found
    ]
    left, right = min(ends, key=lambda pair: pair[1] - pair[0])
    for number, (least, most) in enumerate(ends):
        shift = right - most if number % 2 else left - least
        found[number] = [one + shift for one in found[number]]
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*found, strict=True)]
