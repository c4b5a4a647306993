"""Layers that only algorithms on weights know: of recurrent ops, and products with the weight on the left."""

from __future__ import annotations

import numpy as np

from qc.ir.executor import Observation, Patches
from qc.ir.facts.op_traits import weight_ports
from qc.ir.graph import Op, Value
from qc.ir.model import Model

from .constant import Constant
from .layer import Layer

_RECURRENT = ("LSTM", "GRU", "RNN")
_STATE = 2  # the port of the weight of the state


class LeftProduct(Layer):
    """A MatMul of a weight ``(outputs, features)`` by data ``(..., features, columns)``."""

    @property
    def data(self) -> Value:
        """The tensor that the weight multiplies."""
        data = self.op.inputs[1]
        assert data is not None
        return data

    @property
    def is_transposed(self) -> bool:
        """Whether the outputs are along the last axis of the weight."""
        return False


class InputKernel(Layer):
    """The weight ``(directions, gates * hidden, inputs)`` that multiplies the data of a recurrent op."""

    def as_matrix(self, array: np.ndarray) -> np.ndarray:
        """Directions are outputs like others, since all read the same data."""
        return array.reshape(1, -1, array.shape[2])

    def as_weight(self, matrix: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`as_matrix`."""
        return matrix.reshape(self.weight.array.shape)


class StateKernel(Layer):
    """The weight ``(directions, gates * hidden, hidden)`` that multiplies the state of a recurrent op.

    What it multiplies is known where all states are a result of the op: shifted by a step, which makes no
    difference to their means and products.
    """

    @property
    def data(self) -> Value:
        """The states of all steps."""
        data = self.op.outputs[0]
        assert data is not None
        return data

    def as_matrix(self, array: np.ndarray) -> np.ndarray:
        """Each direction is a group with a matrix of its own."""
        return array

    def as_weight(self, matrix: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`as_matrix`."""
        return matrix

    @property
    def features(self) -> Observation:
        """Of the states as :meth:`arranged` has them."""
        return Observation("gram", patches=Patches((1,), group=self.groups))

    def arranged(self, data: np.ndarray) -> np.ndarray:
        """States ``(steps, directions, batch, hidden)`` as ``(steps * batch, directions * hidden, 1)``."""
        steps, directions, batch, hidden = data.shape
        return np.swapaxes(data, 1, 2).reshape(steps * batch, directions * hidden, 1)


def unusual_layers(model: Model, op: Op) -> list[Layer]:
    """What of an op is a layer beside :meth:`Layer.of`."""
    if op.is_type("MatMul"):
        return [layer for layer in [_left_product(model, op)] if layer is not None]
    if not op.is_type(*_RECURRENT):
        return []
    found: list[Layer] = []
    for port in weight_ports(op):
        weight = Constant.of_floats(model, op, port)
        if weight is None:
            continue
        if port != _STATE:
            found.append(InputKernel(op, weight, 1, 2, 2, None))
        elif op.outputs[0] is not None:
            found.append(StateKernel(op, weight, weight.shape[0], 1, 1, None))
    return found


def _left_product(model: Model, op: Op) -> Layer | None:
    weight, data = Constant.of_floats(model, op, 0), op.inputs[1]
    result = op.outputs[0]
    if weight is None or result is None or data is None or data.original.const is not None:
        return None
    shape, given = result.type.shape, data.type.shape
    if len(weight.shape) != 2 or shape is None or given is None:
        return None
    axis = max(len(given) - 2, 0)
    return LeftProduct(op, weight, 1, axis, max(len(shape) - 2, 0), None)
