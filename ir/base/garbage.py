"""Python's search for garbage, kept from looking where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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

    Does nothing if somebody else has taken objects out of the search, which are not ours to bring back.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
