"""What layers multiply in the float model and in the quantized one, seen side by side on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from qc.ir.executor import Executor, Feed
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.stored_types import computed_names

from ...lower.rounding.simulation import simulated
from ..layers.layer import Layer

# Rows of features that are looked at, at least, and for each feature.
_LEAST_ROWS = 1 << 15
_ROWS_PER_FEATURE = 32


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
        groups, _, features = layer.matrix.shape
        feeds = [{"float": full[i], "quantized": rounded[i]} for i in _chosen(layer, full, features)]
        assert layer.features is not None
        model = _joined(layer, full[0].ndim, full[0].shape[layer.input_axis])
        (found,) = self._executor.observe(model, {"both": [layer.features]}, feeds).values()
        return Features(
            found.mean().reshape(groups, 2 * features),
            found.second_moment().reshape(groups, 2 * features, 2 * features),
        )

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


def _chosen(layer: Layer, arrays: Sequence[np.ndarray], features: int) -> range:
    """The feeds that are enough to know the features of a layer, evenly spaced."""
    strides = layer.op.attribute("strides", ()) if layer.op.is_type("Conv") else ()
    channels = arrays[0].shape[layer.input_axis]
    rows = sum(array.size for array in arrays) / max(channels * int(np.prod(strides, dtype=int)), 1)
    enough = max(_LEAST_ROWS, _ROWS_PER_FEATURE * features)
    return range(0, len(arrays), max(int(rows / enough), 1))


def _joined(layer: Layer, rank: int, channels: int) -> ModelProto:
    """The model that lays two tensors side by side along the channels, group by group."""
    axis = layer.input_axis
    order = np.arange(2 * channels).reshape(2, layer.groups, -1).swapaxes(0, 1).ravel()
    nodes = [
        helper.make_node("Concat", ["float", "quantized"], ["joined"], axis=axis),
        helper.make_node("Gather", ["joined", "order"], ["both"], axis=axis),
    ]
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
        for name in ("float", "quantized", "both")
    ]
    stored = [numpy_helper.from_array(order, "order")]
    graph = helper.make_graph(nodes, "features", tensors[:2], tensors[2:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
