"""Inputs beyond their grids: data that saturates, or that a calibration never saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from qc.compiler.compiled import Compiled
from qc.ir.executor import Feed

_TOLD = 0.01  # of the values of an input; methods that clip leave out far less


class Outside:
    """Counts the values of quantized inputs that lie beyond their grids, while feeds go by.

    Attributes:
        ranges: the smallest and the largest value of the grid of each input.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.ranges: dict[str, tuple[float, float]] = {}
        self._beyond: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._within: dict[str, tuple[float, float]] = {}  # half a step more, which is rounded to the ends
        for value in compiled.ir.graph.inputs:
            held = [
                one.encoding for one in compiled.ir.quant.quantizers_on(value) if one.encoding is not None
            ]
            if held:
                low = min(float(one.minimum.min()) for one in held)
                high = max(float(one.maximum.max()) for one in held)
                half = 0.51 * max(float(one.scale.max()) for one in held)
                self.ranges[value.name] = low, high
                self._within[value.name] = low - half, high + half

    def watch(self, feeds: Iterable[Feed]) -> Iterator[Feed]:
        """The feeds, each of which is counted as it goes by."""
        for feed in feeds:
            self.add(feed)
            yield feed

    def add(self, feed: Feed) -> None:
        """Counts one feed."""
        for name, (low, high) in self._within.items():
            if name in feed:
                array = feed[name]
                beyond = np.count_nonzero((array < low) | (array > high))
                self._beyond[name] = self._beyond.get(name, 0) + int(beyond)
                self._seen[name] = self._seen.get(name, 0) + array.size

    def notes(self) -> list[str]:
        """A sentence for each input of which more than a hundredth lies beyond its grid."""
        found = []
        for name, seen in self._seen.items():
            share, (low, high) = self._beyond[name] / max(seen, 1), self.ranges[name]
            if share > _TOLD:
                told = f"{share:.1%} of the values of input '{name}' lie beyond {low:.4g} to {high:.4g}"
                found.append(
                    f"{told}, the range that calibration found for it, and saturate: calibrate on data like "
                    "this, prepared in the same way"
                )
        return found
