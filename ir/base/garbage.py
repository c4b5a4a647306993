"""Python's search for garbage, kept from looking where there is none."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Collections of the middle generation before one of the oldest: some ten million objects more.
_RARELY = 1000
_LARGE = 1 << 26  # bytes


@contextmanager
def without_collections() -> Iterator[None]:
    """A block that makes many objects and no garbage: looking for some would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def old_objects_spared() -> Iterator[None]:
    """A block in which Python looks for garbage among new objects only, not again and again in a large model.

    What was there before is not looked at, and what the block makes and keeps is hardly ever: while a model
    grows by a million objects, Python would go through all of them many times.

    Does nothing if somebody else has taken objects out of the search, which are not ours to bring back.
    """
    if gc.get_freeze_count():
        yield
        return
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*thresholds[:2], _RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def free_models(size: int) -> None:
    """Frees large models that nobody uses any more, before one of ``size`` bytes is made.

    Ops and graphs refer to each other, so that a model goes only when Python looks for such cycles. It does
    so by the number of objects, which may be few and hold gigabytes.
    """
    if size > _LARGE:
        gc.collect()
        _give_back()


def _give_back() -> None:
    """Gives memory that was freed back to the system, where the C library has a function for that."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
