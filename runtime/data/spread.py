"""Data in an order of which every beginning comes from all over it.

Folders hold one class after the other, and the first samples would tell of the first class alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from qc.ir.executor import Feed

from .load import Data

_FIRST = 8  # samples that the first part holds at most
_STEP = 8  # every eighth is read behind it, every fourth, every second, and the others


class _Part(NamedTuple):
    """Every ``step``-th feed from ``start`` on, but for those whose number ``without`` divides."""

    start: int
    step: int
    without: int = 0

    def holds(self, number: int) -> bool:
        """Whether a feed is in it."""
        return number % self.step == self.start and not (self.without and number % self.without == 0)


class Spread(Data):
    """The feeds of data in another order: the beginnings of it are from all over the data.

    They are read in up to five passes. What cannot be read in parts without reading all, or is of unknown
    length, stays in its order.
    """

    def __init__(self, data: Data) -> None:
        super().__init__(data.inputs, data.source, data.share)
        self._parts = _parts(data.length) if data.length is not None and data.source.skips else ()

    def __iter__(self) -> Iterator[Feed]:
        if not self._parts:
            yield from super().__iter__()
        for part in self._parts:
            for place, feed in enumerate(self.shard(part.start, part.step)):
                if part.holds(part.start + place * part.step):
                    yield feed

    def order(self, labels: Sequence[Any] | np.ndarray) -> list[Any]:
        """What there is for each feed, in the order of the feeds."""
        parts = self._parts or (_Part(0, 1),)
        return [one for part in parts for number, one in enumerate(labels) if part.holds(number)]


def _parts(length: int) -> tuple[_Part, ...]:
    """The parts of so many feeds, each of which is from all over them."""
    step = 1 << (max(length - 1, 0) // _FIRST).bit_length()
    parts = [_Part(0, step)]
    if step > _STEP:
        parts.append(_Part(0, _STEP, without=step))
        step = _STEP
    while step > 1:
        parts.append(_Part(step // 2, step))
        step //= 2
    return tuple(parts)
