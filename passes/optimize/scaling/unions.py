"""Things that can only be scaled together, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

Pairs = Iterable[tuple[np.ndarray, np.ndarray]]


class Unions:
    """Numbers from 0 on, each for something that has a scale; joined ones have the same.

    All arrays of numbers are int64.
    """

    def __init__(self) -> None:
        self.count = 0
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self._fixed: list[tuple[np.ndarray, str]] = []

    def new(self, *shape: int) -> np.ndarray:
        """New numbers in an array of that shape."""
        size = int(np.prod(shape))
        self.count += size
        return np.arange(self.count - size, self.count).reshape(shape)

    def join(self, first: np.ndarray, second: np.ndarray) -> None:
        """Joins the numbers of two arrays that broadcast, element by element."""
        both = np.broadcast_arrays(first, second)
        self._pairs.append((both[0].ravel(), both[1].ravel()))

    def fix(self, numbers: np.ndarray, reason: str) -> None:
        """Says that what these numbers stand for, and all that is joined to it, cannot be scaled."""
        self._fixed.append((numbers.ravel(), reason))

    def sets(self) -> np.ndarray:
        """For each number the smallest one that it is joined to; shape ``(count,)``."""
        return smallest(self.count, self._pairs)

    def reasons(self, sets: np.ndarray) -> dict[int, str]:
        """Why sets cannot be scaled, by the smallest of their numbers; those that can be are left out."""
        found: dict[int, str] = {}
        for numbers, reason in self._fixed:
            for one in np.unique(sets[numbers]).tolist():
                found.setdefault(one, reason)
        return found


def smallest(count: int, pairs: Pairs) -> np.ndarray:
    """The smallest number in the connected component of each of the numbers from 0 to ``count``."""
    joined = list(pairs)
    first, second = (
        np.concatenate([pair[side] for pair in joined]) if joined else np.empty(0, np.int64)
        for side in (0, 1)
    )
    root = np.arange(count)
    while True:
        low = np.minimum(root[first], root[second])
        found = root.copy()
        for side in (root[first], root[second], first, second):
            np.minimum.at(found, side, low)
        found = found[found]
        if np.array_equal(found, root):
            return root
        root = found
