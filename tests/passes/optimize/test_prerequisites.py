"""Passes that start from grids, in front of the one that finds them."""

from __future__ import annotations

import pytest
from support.models import parse, random_feeds
from support.pipelines import PLACE, PREPARE, apply

CHAIN = """g (float[2, 3, 6, 6] x) => (float[2, 2, 6, 6] y)
    <float[4, 3, 1, 1] w, float[4] b, float[2, 4, 1, 1] v> {
    a = Conv(x, w, b)
    r = Relu(a)
    y = Conv(r, v)
}"""
STARTS_FROM_GRIDS = [
    "choose-ranges",
    "round-weights",
    "choose-weight-ranges",
    "reestimate-batch-norms",
    "correct-bias",
]


@pytest.mark.parametrize("name", STARTS_FROM_GRIDS)
def test_a_pass_that_starts_from_grids_tells_if_there_are_none_yet(name: str) -> None:
    source = parse(CHAIN)
    feeds = list(random_feeds(source, 4))
    for order, count in ((f"{name},calibrate", 1), (f"calibrate,{name}", 0)):
        _, context, _ = apply(f"{PREPARE},{PLACE},{order},insert-qdq", source, "npu", feeds)
        told = [note for note in context.notes if f"pass '{name}' is to be run behind 'calibrate'" in note]
        assert len(told) == count


@pytest.mark.parametrize("name", STARTS_FROM_GRIDS)
def test_nothing_is_said_where_nothing_is_quantized(name: str) -> None:
    source = parse(CHAIN)
    assert not apply(name, source, "npu", list(random_feeds(source, 4)))[1].notes
