"""What layers multiply in the float model and in the quantized one, seen side by side on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from qc.ir.errors import DataError
from qc.ir.executor import Executor, Feed
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.stored_types import computed_names

from ...lower.rounding.simulation import simulated
from ..layers.layer import Layer

# Rows of features that are looked at, at least, and for each feature.
_LEAST_ROWS = 1 << 13
_ROWS_PER_FEATURE = 16


@dataclass(frozen=True)
class Features:
    """The features of a layer: ``features`` of the float model, then as many of the quantized one.

    Attributes:
        mean: float64, shape ``(groups, 2 * features)``.
        gram: the means of products of each two; float64, shape ``(groups, 2 * features, 2 * features)``.
    """

    mean: np.ndarray
    gram: np.ndarray

    @property
    def centred(self) -> Features:
        """The same without their means: what a bias can make up for does not count."""
        products = self.mean[:, :, np.newaxis] * self.mean[:, np.newaxis, :]
        return Features(np.zeros_like(self.mean), self.gram - products)


class SideBySide:
    """The float model and its simulation, run layer after layer on the same data."""

    def __init__(
        self, model: Model, layers: Sequence[Layer], feeds: Sequence[Feed], executor: Executor
    ) -> None:
        """Runs nothing yet.

        Args:
            layers: of the main graph, each with a bias of its own if it is to be settled too.
            feeds: what both read, for all layers; at least one.
        """
        self._executor = executor
        exact = lower(model)
        self._float = executor.segments(exact, feeds, base_dir=model.base_dir)
        self._sources = _data_names(model, exact, layers)
        with simulated(model) as simulation:
            self._data = _data_names(model, simulation, layers)
            self._weights = {layer: layer.weight.constant.name for layer in layers}
            self._biases = {
                layer: layer.bias.constant.name for layer in layers if layer.bias and layer.bias.value
            }
        self._simulation = executor.segments(simulation, feeds, base_dir=model.base_dir)

    def features(self, layer: Layer) -> Features:
        """The features of a layer behind all that were settled; layers are visited in order.

        Raises:
            DataError: they are NaN or infinite.
        """
        source, data = self._sources[layer], self._data[layer]
        full, rounded = self._float.tensors([source])[source], self._simulation.tensors([data])[data]
        rows = max(_LEAST_ROWS, _ROWS_PER_FEATURE * layer.matrix.shape[-1])
        try:
            return Features(*self._executor.gram(list(zip(full, rounded, strict=True)), layer.features, rows))
        except DataError as error:
            raise DataError(f"{layer.op.label}: {error}") from error

    def settle(self, layer: Layer, weight: np.ndarray) -> None:
        """Lets the simulation go on with a weight, float32 in its layout, and with the bias as it is now."""
        self._simulation.replace(self._weights[layer], weight)
        if layer in self._biases:
            assert layer.bias is not None
            self._simulation.replace(self._biases[layer], layer.bias.rounded(layer.bias.array))


def _data_names(model: Model, lowered: ModelProto, layers: Sequence[Layer]) -> dict[Layer, str]:
    """The tensor that each layer reads in a lowered model."""
    computed = computed_names(model, lowered)
    return {layer: computed.get(layer.data.name, layer.data.name) for layer in layers}
