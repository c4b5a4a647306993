"""Inputs beyond their grids: data that saturates, or that a calibration never saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from qc.ir.executor import Feed
from qc.ir.facts.qdq import QdqReader, is_qdq
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding
from qc.passes.quantize.calibration.range_of import SCHEMES

_TOLD = 0.01  # of the values of an input; methods that clip leave out far less
_UNSEEN = (
    "the range that calibration found for it, and saturate: calibrate on data like this, prepared in the "
    "same way"
)
_METHODS = {scheme: method for method, scheme in SCHEMES.items()}


class SaturationCounter:
    """Counts the values of quantized inputs that lie beyond their grids, while feeds go by.

    Args:
        ir: a model with quantizers, or with quantize and dequantize ops.
        is_calibration: whether the feeds are those that ranges were found on.

    Attributes:
        ranges: the smallest and the largest value of the grid of each input.
    """

    def __init__(self, ir: Model, is_calibration: bool = False) -> None:
        self.ranges: dict[str, tuple[float, float]] = {}
        self._advice = _why_clipped(ir) if is_calibration else _UNSEEN
        self._beyond: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._within: dict[str, tuple[float, float]] = {}  # half a step more, which is rounded to the ends
        for value in ir.graph.inputs:
            held = _grids(ir, value)
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
                found.append(f"{told}, {self._advice}")
        return found


def _why_clipped(ir: Model) -> str:
    """What left so little of the range of the very data that it was found on, and what leaves more."""
    method = _METHODS.get(ir.quant.scheme, ir.quant.scheme)
    if method in ("", "min-max"):
        return "the range that the pipeline gave it, and saturate: 'qc why' tells which pass did"
    more = ", a higher calibrate.percentile more" if method == "percentile" else ""
    return (
        f"the range that calibrate.method={method} leaves of it, and saturate: "
        f"--opt calibrate.method=min-max keeps all of it{more}"
    )


def _grids(ir: Model, value: Value) -> list[Encoding]:
    """The grids that a value is rounded to, by quantizers or by ops."""
    reader = QdqReader()
    found = [held.encoding for held in ir.quant.quantizers_on(value)]
    for op, port in value.uses:
        if port == 0 and is_qdq(op, "QuantizeLinear"):
            found.append(reader.encoding(op))
        elif port == 0 and (read := reader.quantization(op)) is not None and read[0] is value:
            found.append(read[1].encoding)
    return [encoding for encoding in found if encoding is not None]
