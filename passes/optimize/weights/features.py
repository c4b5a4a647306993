"""What layers multiply in the float model and in the quantized one, seen side by side on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto

from qc.ir.errors import DataError
from qc.ir.executor import Executor, Feed, Observation, Statistics
from qc.ir.facts.scopes import name_apart
from qc.ir.model import Model
from qc.ir.onnx.float_model import lower_float
from qc.ir.onnx.stored_types import computed_names
from qc.ir.quant.arithmetic import rounded
from qc.ir.rewriter import Rewriter

from ...lower.rounding.simulation import simulated
from ..layers.layer import Layer
from ..layers.open import Uses

# Rows of features that are looked at, at least, and for each feature.
_LEAST_ROWS = 1 << 13
_ROWS_PER_FEATURE = 16
# Bytes of Gram matrices that are collected at once in bodies, and what a product takes there.
_AT_ONCE = 1 << 30
_PRODUCT = 42
# What sums of products in float64 are rounded by, at most, as a share of the sum of all squares.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Features:
    """The features of a layer: ``features`` of the float model, then as many of the quantized one.

    Attributes:
        means: those of each layer, as several may read one weight; float64, shape
            ``(layers, groups, 2 * features)``.
        gram: the means of products of each two, averaged over the layers; float64, shape
            ``(groups, 2 * features, 2 * features)``.
        rows: how many there are of each, in all layers.
    """

    means: np.ndarray
    gram: np.ndarray
    rows: int

    @classmethod
    def average(cls, parts: Iterable[Features | None]) -> Features | None:
        """Those of one layer, or of several that read one weight; no more than three are in memory.

        Layers without any do not count; None if all are.
        """
        means, rows, gram = [], 0, np.zeros(0)
        for part in filter(None, parts):
            means.append(part.means)
            rows += part.rows
            known = gram if len(means) > 2 else None  # the first one is not ours to change
            gram = part.gram if len(means) == 1 else np.add(gram, part.gram, out=known)
            del part
        if not means:
            return None
        if len(means) > 1:
            gram /= len(means)
        return cls(np.concatenate(means), gram, rows)

    @property
    def centred(self) -> Features:
        """The same without their means: what a bias of each layer can make up for does not count."""
        gram = self.gram.copy()
        for mean in self.means:
            for row in range(mean.shape[-1]):  # all at once would need as much memory as the matrices twice
                gram[:, row] -= mean[:, row, np.newaxis] * mean / len(self.means)
        # Of constants the rounding of sums is left, which may be below zero: all is as if the features of
        # both models varied together by a little.
        rounding = _ROUNDING * np.einsum("gii->g", self.gram)[:, np.newaxis]
        places = np.arange(self.means.shape[-1])
        gram[:, places, places] += rounding
        gram[:, places, np.roll(places, len(places) // 2)] += rounding
        return replace(self, means=np.zeros_like(self.means), gram=gram)


class SideBySide:
    """The float model and its simulation, run layer after layer on the same data."""

    def __init__(
        self, model: Model, layers: Sequence[Layer], feeds: Sequence[Feed], executor: Executor
    ) -> None:
        """Runs nothing yet.

        Args:
            model: whose weights are rounded as they are now.
            layers: of the main graph, each with a bias of its own if it is to be settled too.
            feeds: what both read, for all layers; at least one.
        """
        self._executor = executor
        exact = lower_float(model)
        self._float = executor.segments(exact, feeds, base_dir=model.base_dir)
        self._sources = _data_names(model, exact, layers)
        with simulated(model) as simulation:
            self._data = _data_names(model, simulation, layers)
            self._weights = {layer: layer.weight.constant.name for layer in layers}
            self._biases = {
                layer: layer.bias.constant.name for layer in layers if layer.bias and layer.bias.value
            }
        self._simulation = executor.segments(simulation, feeds, base_dir=model.base_dir)
        self._means: dict[Layer, np.ndarray | None] = {}  # as long as nothing is settled
        self._settled: set[str] = set()

    def features(self, uses: Uses) -> Features | None:
        """The features of a weight behind all that were settled; weights are visited in order.

        Samples on which both models have as many are looked at; None if there are none.

        Raises:
            DataError: they are NaN or infinite.
        """
        return Features.average(self._features(layer) for layer in uses)

    def mean(self, layer: Layer) -> np.ndarray | None:
        """The means of the features of a layer, as one of :attr:`Features.means`; None likewise."""
        if layer not in self._means:
            self._features(layer)
        return self._means[layer]

    def _features(self, layer: Layer) -> Features | None:
        source, data = self._sources[layer], self._data[layer]
        both = self._float.tensors([source])[source], self._simulation.tensors([data])[data]
        pairs = [[layer.arranged(array) for array in pair] for pair in zip(*both, strict=True)]
        # How many rows there are may depend on what is computed, and rounding changes that.
        feeds = [(exact, rounded) for exact, rounded in pairs if exact.shape == rounded.shape]
        rows = max(_LEAST_ROWS, _ROWS_PER_FEATURE * layer.matrix.shape[-1])
        try:
            found = self._executor.gram(feeds, layer.features, rows)
        except DataError as error:
            raise DataError(f"{layer.op.label}: {error}") from error
        self._means[layer] = found[0] if found else None
        return Features(found[0][np.newaxis], *found[1:]) if found else None

    def settle(self, layer: Layer) -> None:
        """Lets the simulation go on, for good, with a weight as it is rounded now, and a bias as it is."""
        self._replace(self._weights[layer], rounded_weight(layer))
        if layer in self._biases:
            assert layer.bias is not None
            self._replace(self._biases[layer], layer.bias.rounded(layer.bias.array))

    def _replace(self, name: str, array: np.ndarray) -> None:
        if name not in self._settled:
            self._settled.add(name)
            self._simulation.replace(name, array)
            self._means.clear()


class Streamed:
    """The features of layers that bodies hold, in the simulation: from there no tensor comes out.

    They stand for those of the float model as well, so that such layers make up for nothing.
    """

    def __init__(
        self, model: Model, weights: Sequence[Uses], feeds: Sequence[Feed], executor: Executor
    ) -> None:
        """Runs nothing yet.

        Args:
            model: whose weights are rounded as they are now.
            weights: of all bodies.
            feeds: what is read, once for as many weights as fit into memory.
        """
        self._executor, self._feeds, self._base_dir = executor, feeds, model.base_dir
        self._waiting = list(weights)
        rewriter, layers = Rewriter(model), [layer for uses in weights for layer in uses]
        with rewriter.trial():
            name_apart(rewriter)
            with simulated(model) as simulation:
                self._model = simulation
                self._data = _data_names(model, simulation, layers)
        self._found: dict[Layer, Features | None] = {}

    def features(self, uses: Uses) -> Features | None:
        """The features of a weight; None if no sample reaches it."""
        return Features.average(self._features(layer) for layer in uses)

    def mean(self, layer: Layer) -> np.ndarray | None:
        """The means of the features of a layer, as one of :attr:`Features.means`; None likewise."""
        found = self._features(layer)
        return found.means[0] if found is not None else None

    def settle(self, layer: Layer) -> None:
        """Changes nothing: all weights of bodies are seen behind what was rounded to nearest."""

    def _features(self, layer: Layer) -> Features | None:
        if layer not in self._found:
            while layer not in self._waiting[0]:
                self._waiting.pop(0)
            self._found = self._collected()
        return self._found[layer]

    def _collected(self) -> dict[Layer, Features | None]:
        """Those of the weights that come next."""
        layers: list[Layer] = []
        used = 0
        while self._waiting and (not layers or used < _AT_ONCE):
            uses = self._waiting.pop(0)
            layers += uses
            groups, _, features = uses[0].matrix.shape
            used += len(uses) * groups * features * features // 2 * _PRODUCT
        requests: dict[str, list[Observation]] = {}
        for layer in layers:
            requests.setdefault(self._data[layer], []).append(layer.features)
        found = self._executor.observe(self._model, requests, self._feeds, base_dir=self._base_dir)
        return {layer: _of_statistics(found[self._data[layer], layer.features], layer) for layer in layers}


def _of_statistics(statistics: Statistics, layer: Layer) -> Features | None:
    if statistics.count == 0:
        return None
    groups, _, features = layer.matrix.shape
    mean = statistics.mean().reshape(groups, features)
    gram = statistics.second_moment().reshape(groups, features, features)
    patches = layer.features.patches
    channels = groups * features // math.prod(patches.kernel if patches else ())
    rows = max(statistics.count // channels, 1)
    return Features(np.tile(mean, (1, 1, 2)), np.tile(gram, (1, 2, 2)), rows)


def rounded_weight(layer: Layer) -> np.ndarray:
    """The numbers of a weight on its grid; float32, in its layout."""
    quantizer = layer.weight.quantizer
    assert quantizer is not None
    return rounded(layer.weight.array, quantizer)


def _data_names(model: Model, lowered: ModelProto, layers: Sequence[Layer]) -> dict[Layer, str]:
    """The tensor that each layer reads in a lowered model."""
    computed = computed_names(model, lowered)
    return {layer: computed.get(layer.data.name, layer.data.name) for layer in layers}
