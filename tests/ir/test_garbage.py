"""Python's search for garbage while models are worked on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import numpy_helper
from support.models import parse

from qc.ir import lift
from qc.ir.base.garbage import old_objects_spared


class Ring:
    """An object that only a search for garbage can free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_what_is_made_and_kept_is_not_searched_again_and_again() -> None:
    with old_objects_spared():
        gc.collect()  # so that Python thinks of its old objects as few
        before, kept = full_collections(), [[number] for number in range(200_000)]
        assert full_collections() == before
    assert len(kept) == 200_000
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((700, 10, 10), 0)


def test_new_garbage_is_found() -> None:
    with old_objects_spared():
        ring = weakref.ref(Ring())
        kept = [[number] for number in range(20_000)]
        assert ring() is None
    assert kept


def test_what_somebody_else_set_aside_stays_there() -> None:
    gc.freeze()
    try:
        with old_objects_spared():
            assert gc.get_threshold() == (700, 10, 10)
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_large_models_that_nobody_uses_are_freed_for_the_next_one() -> None:
    weight = numpy_helper.from_array(np.zeros((1 << 24) + 1, np.float32), "w")
    model = parse("g (float[1] x) => (float[N] y) { y = Add(x, w) }")
    model.graph.initializer.append(weight)
    gone = weakref.ref(lift(model))
    gc.disable()
    try:
        lift(model)
    finally:
        gc.enable()
    assert gone() is None
