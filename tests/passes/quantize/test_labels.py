"""The cheapest labels of nodes: a minimum cut against all ways that there are."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from qc.passes.quantize.placement.labels import NEVER, Labels

SMALL = st.integers(0, 9)
PAIRS = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(
    own=st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=7),
    between=st.dictionaries(PAIRS, st.one_of(SMALL, st.just(NEVER)), max_size=14),
)
def test_no_other_labels_cost_less(own: list[tuple[int, int]], between: dict[tuple[int, int], int]) -> None:
    labels, count = Labels(), len(own)
    for node, (integer, floats) in enumerate(own):
        labels.add_node(node, integer, floats)
    for (one, other), cost in between.items():
        labels.add_cost(one % count, other % count, cost)
    found = labels.cheapest()
    ways = [dict(enumerate(way)) for way in product((False, True), repeat=count)]
    least = min(map(labels.cost, ways))
    assert labels.cost(found) == least
    cheapest = [way for way in ways if labels.cost(way) == least]
    assert sum(found.values()) == min(sum(way.values()) for way in cheapest)


@given(st.lists(st.tuples(SMALL, SMALL), min_size=2, max_size=6), st.data())
def test_nodes_can_be_held_in_integers(own: list[tuple[int, int]], data: st.DataObject) -> None:
    labels = Labels()
    for node, (integer, floats) in enumerate(own):
        labels.add_node(node, integer, floats)
    held = data.draw(st.sets(st.integers(0, len(own) - 1)))
    found = labels.cheapest(integer=held)
    assert not any(found[node] for node in held)


def test_what_labels_cost_at_some_nodes_is_a_part_of_the_whole() -> None:
    labels = Labels()
    labels.add_node("a", integer=3, float=5)
    labels.add_node("b", integer=7, float=1)
    labels.add_cost("a", "b", 2)
    way = {"a": False, "b": True}
    assert labels.cost(way) == 6
    assert labels.cost(way, ["a"]) == 5
    assert labels.cost(way, ["b"]) == 3
