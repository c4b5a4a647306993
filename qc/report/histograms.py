"""How often each value of a tensor occurs, beside the grid that it is rounded to. Sizes are in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError, nearest
from qc.ir.executor import Observation
from qc.ir.graph import Value
from qc.ir.onnx.stored_types import computed_names
from qc.ir.quant.spec import Encoding
from qc.layers import LayerError, LayerErrors
from qc.runtime import Data, OrtExecutor, Spread, TensorStatistics

WIDTH, HEIGHT = 320, 90
_BINS = 64
_SHOWN = 6
_SAMPLES = 16
_OBSERVATION = Observation("histogram")


@dataclass(frozen=True)
class Histogram:
    """One tensor of the float model, and the grid of its quantizer.

    Attributes:
        layer: the tensor and its error.
        counts: how many values are in each of equally wide bins over ``limits``.
        limits: from the least to the greatest value, of the tensor or of the grid.
        grid: the least and the greatest value of the grid; of the widest channel.
        scale: the least and the greatest step between two values of the grid.
    """

    layer: LayerError
    counts: tuple[float, ...]
    limits: tuple[float, float]
    grid: tuple[float, float]
    scale: tuple[float, float]

    @property
    def words(self) -> str:
        """The format, the range, the steps of the grid."""
        low, high = self.grid
        least, most = self.scale
        step = f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"
        return f"{self.layer.spec}, {low:.4g} to {high:.4g}, in steps of {step}"

    def bars(self) -> Iterator[tuple[str, str, str]]:
        """Left edge, top and height of each bar, on a logarithmic scale, as half of all values are near 0."""
        most = max(np.log1p(max(self.counts)), 1.0)
        width = WIDTH / len(self.counts)
        for index, number in enumerate(self.counts):
            if number:
                height = max(HEIGHT * float(np.log1p(number) / most), 1.0)
                yield f"{index * width:.1f}", f"{HEIGHT - height:.1f}", f"{height:.1f}"

    @property
    def bar_width(self) -> str:
        """Of one bar, with a gap to the next."""
        return f"{WIDTH / len(self.counts) - 1:.1f}"

    @property
    def grid_span(self) -> tuple[str, str]:
        """Left edge and width of the grid."""
        low, high = self.limits
        left, right = (WIDTH * (end - low) / (high - low) for end in self.grid)
        return f"{left:.1f}", f"{right - left:.1f}"


def histograms_of(
    compiled: Compiled, data: Data, errors: LayerErrors, tensors: Sequence[str]
) -> Iterator[Histogram]:
    """The histograms of tensors over some samples; without names, of those that lose most in isolation.

    Raises:
        UsageError: no tensor of a name is quantized.
    """
    found = _with_grids(compiled, _chosen(errors, tensors))
    names = computed_names(compiled.ir, compiled.float_model)
    requests = {
        names.get(layer.tensor, layer.tensor): [_OBSERVATION]
        for layer, value, _ in found
        if value.const is None
    }
    statistics = OrtExecutor().observe(
        compiled.float_model, requests, list(islice(Spread(data), _SAMPLES)), base_dir=compiled.ir.base_dir
    )
    for layer, value, encoding in found:
        if value.const is not None:
            seen = TensorStatistics.from_array(value.const.numpy(), _OBSERVATION)
        else:
            seen = statistics[names.get(layer.tensor, layer.tensor), _OBSERVATION]
        yield _histogram(layer, seen, encoding)


def _chosen(errors: LayerErrors, tensors: Sequence[str]) -> list[LayerError]:
    """One place for each tensor: that where it loses most."""
    by_name: dict[str, LayerError] = {}
    for layer in errors.worst_first():
        by_name.setdefault(layer.tensor, layer)
    for name in tensors:
        if name not in by_name:
            raise UsageError(f"no quantized tensor has the name '{name}'{nearest(name, list(by_name))}")
    return [by_name[name] for name in tensors] if tensors else list(by_name.values())[:_SHOWN]


def _with_grids(compiled: Compiled, layers: Sequence[LayerError]) -> list[tuple[LayerError, Value, Encoding]]:
    table = compiled.ir.quant
    grids: dict[tuple[str, int], tuple[Value, Encoding]] = {}
    for site in table.sites():
        quantizer = table.get(site)
        if quantizer is not None and quantizer.encoding is not None:
            grids[site.value.name, quantizer.id] = site.value, quantizer.encoding
    return [(layer, *grids[layer.tensor, layer.quantizer]) for layer in layers]


def _histogram(layer: LayerError, statistics: TensorStatistics, encoding: Encoding) -> Histogram:
    edges, counts = statistics.histogram()
    grid = float(encoding.minimum.min()), float(encoding.maximum.max())
    low, high = min(edges[0], grid[0]), max(edges[-1], grid[1])
    if low == high:
        low, high = low - 1, high + 1
    middles = (edges[:-1] + edges[1:]) / 2
    binned, _ = np.histogram(middles, _BINS, (low, high), weights=counts)
    scale = float(encoding.scale.min()), float(encoding.scale.max())
    return Histogram(layer, tuple(binned.tolist()), (float(low), float(high)), grid, scale)
