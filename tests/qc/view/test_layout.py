"""Where boxes and lines are drawn: nothing covers anything, and everything points down."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from qc.view.layout import Box, Layout, Link, layers_of, layout
from qc.view.ordering import order_layers

SLACK = 1e-6  # pixels


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Link]]:
    """Boxes in topological order, and links from each to later ones, some twice to the same."""
    count = draw(st.integers(1, 14))
    sizes = st.floats(10, 200, allow_nan=False)
    boxes = [Box(draw(sizes), draw(sizes)) for _ in range(count)]
    links = []
    for source in range(count - 1):
        for _ in range(draw(st.integers(0, 2))):
            targets = draw(st.lists(st.integers(source + 1, count - 1), min_size=1, max_size=4))
            links.append(Link(source, tuple(targets)))
    return boxes, links


def edges(box: Box, centre: tuple[float, float]) -> tuple[float, float, float, float]:
    return (
        centre[0] - box.width / 2,
        centre[0] + box.width / 2,
        centre[1] - box.height / 2,
        centre[1] + box.height / 2,
    )


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


@settings(max_examples=60)
@given(graphs())
def test_boxes_stand_apart_within_the_drawing(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    found = layout(boxes, links)
    places = [edges(box, centre) for box, centre in zip(boxes, found.centres, strict=True)]
    assert not any(overlap(a, b) for a, b in combinations(places, 2))
    for left, right, top, bottom in places:
        assert left >= -SLACK and right <= found.width + SLACK
        assert top >= -SLACK and bottom <= found.height + SLACK


@settings(max_examples=60)
@given(graphs())
def test_routes_lead_down_from_box_to_box(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    found = layout(boxes, links)
    for link, route in zip(links, found.routes, strict=True):
        left, right, _, bottom = edges(boxes[link.source], found.centres[link.source])
        assert route.trunk[0].top == bottom and left <= route.trunk[0].x <= right
        for target, (depth, end) in zip(link.targets, route.branches, strict=True):
            left, right, top, _ = edges(boxes[target], found.centres[target])
            assert end.bottom == top and left <= end.x <= right
            way = [*route.trunk[:depth], end]
            for one, other in pairwise(way):
                if one.goes_up:
                    assert other.x > one.x and one.bottom < other.top
                else:
                    assert one.top <= one.bottom + SLACK and one.bottom < other.top


@settings(max_examples=60)
@given(graphs())
def test_lines_pass_between_boxes(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    found = layout(boxes, links)
    for route in found.routes:
        for station in route.trunk[1:]:
            for box, centre in zip(boxes, found.centres, strict=True):
                left, right, top, bottom = edges(box, centre)
                within = station.top < bottom and top < station.bottom
                assert not (within and left < station.x < right)


@given(graphs())
def test_layers_follow_the_links(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    layers = layers_of(len(boxes), links)
    assert all(layers[link.source] < layers[target] for link in links for target in link.targets)
    assert min(layers) >= 0


def test_a_constant_stands_above_its_only_reader() -> None:
    links = [Link(0, (1,)), Link(1, (2,)), Link(2, (4,)), Link(3, (4,))]
    assert layers_of(5, links) == [0, 1, 2, 2, 3]


def test_a_chain_is_straight_beside_a_long_line() -> None:
    boxes = [Box(60, 30)] * 6
    links = [Link(0, (1, 5)), *(Link(i, (i + 1,)) for i in range(1, 5))]
    found: Layout = layout(boxes, links)
    chain = {round(found.centres[box][0], 3) for box in range(1, 5)}
    trunk = {round(station.x, 3) for station in found.routes[0].trunk[1:]}
    assert len(chain) == len(trunk) == 1
    assert abs(chain.pop() - trunk.pop()) > 30


def test_order_takes_crossings_away() -> None:
    layers = [[0, 1, 2], [3, 4, 5]]
    below = [[5], [4], [3], [], [], []]
    above = [[], [], [], [2], [1], [0]]
    order_layers(layers, above, below)
    assert [below[place][0] for place in layers[0]] == layers[1]


def test_a_long_chain_stands_in_columns() -> None:
    boxes = [Box(60, 30)] * 3_000
    found = layout(boxes, [Link(i, (i + 1,)) for i in range(2_999)])
    columns = Counter(x for x, _ in found.centres)
    assert 1 < found.width / found.height < 2
    assert max(columns.values()) - min(columns.values()) <= 1
    assert [x for x, _ in found.centres] == sorted(x for x, _ in found.centres)
    turns = [station for route in found.routes for station in route.trunk if station.goes_up]
    assert len(turns) == len(columns) - 1


def test_columns_are_cut_where_few_links_pass() -> None:
    boxes = [Box(60, 30)] * 40
    links = [Link(i, (i + 1,)) for i in range(39)] + [Link(i, (18,)) for i in range(2, 15)]
    found = layout(boxes, links)
    crossing = [station for route in found.routes for station in route.trunk if station.goes_up]
    assert len({x for x, _ in found.centres}) > 1 and len(crossing) <= 16
    assert len({station.x for station in crossing}) == len(crossing)


def test_columns_are_not_cut_where_links_are_heavy() -> None:
    boxes = [Box(60, 30)] * 40
    links = [Link(i, (i + 1,), 1 if i % 4 == 3 else 4) for i in range(39)]
    x = [x for x, _ in layout(boxes, links).centres]
    breaks = [i for i in range(39) if x[i] != x[i + 1]]
    assert breaks and all(i % 4 == 3 for i in breaks)
