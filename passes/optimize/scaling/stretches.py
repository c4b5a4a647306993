"""Stretches of a graph between a layer and the layers that read its result, where channels can be split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qc.ir.facts.op_traits import channel_axis, is_depthwise
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..layers.constant import Constant
from ..layers.layer import Layer
from .operators import ONE_INPUT

_BIAS = 2  # its port
# Of the ops that scales pass, those none of whose parameters knows how many channels there are.
_CARRYING = frozenset(
    {"Abs", "AveragePool", "Clip", "GlobalAveragePool", "GlobalMaxPool", "Identity", "LeakyRelu", "LpPool"}
    | {"MaxPool", "Neg", "Relu"}
)


@dataclass
class Stretch:
    """The tensors whose channels are those of the result of a layer, and all layers on both sides of them.

    Attributes:
        first: the layer that makes the channels.
        depthwise: convolutions in between, that have a kernel for each channel.
        last: the layers that read the channels.
        tensors: all in between, with the axis of the channels.
    """

    first: Layer
    depthwise: list[Layer] = field(default_factory=list)
    last: list[Layer] = field(default_factory=list)
    tensors: dict[Value, int] = field(default_factory=dict)

    @property
    def read(self) -> list[tuple[Value, int]]:
        """The tensors that layers read, with the axis of the channels."""
        return list({layer.data: layer.input_axis for layer in (*self.depthwise, *self.last)}.items())

    @property
    def columns(self) -> list[np.ndarray]:
        """What the weights of the last layers multiply each channel by; each ``(channels, others)``."""
        moved = (np.moveaxis(layer.weight.array, _input_axis(layer), 0) for layer in self.last)
        return [array.reshape(array.shape[0], -1) for array in moved]

    def split(self, rewriter: Rewriter, copies: np.ndarray, divides_weights: bool) -> None:
        """Makes several channels of some: one stays where it was, the others come last; in an action.

        Args:
            copies: how many there are to be of each channel.
            divides_weights: what is divided by their number: columns of weights, or the channels themselves.
        """
        order = np.concatenate([np.arange(copies.size), np.repeat(np.arange(copies.size), copies - 1)])
        shares, ones = 1 / copies[order], np.ones(order.size)
        made, read = (ones, shares) if divides_weights else (shares, ones)
        _take(rewriter, self.first.weight, order, made, _output_axis(self.first))
        for layer in (self.first, *self.depthwise):
            if layer.bias is not None and layer.bias.value is not None:
                _take(rewriter, layer.bias, order, made, layer.bias.array.ndim - 1)
        for layer in self.depthwise:
            _take(rewriter, layer.weight, order, ones, 0)
            rewriter.set_attribute(layer.op, "group", order.size)
        for layer in self.last:
            _take(rewriter, layer.weight, order, read, _input_axis(layer))
        for value, axis in self.tensors.items():
            shape = value.type.shape or ()
            shape = (*shape[:axis], order.size, *shape[axis + 1 :])
            rewriter.set_type(value, value.type._replace(shape=shape))


def stretches_of(model: Model) -> list[Stretch]:
    """Those of the main graph, in its order."""
    layers = {op: layer for op in model.graph.ops() if (layer := Layer.of(model, op)) is not None}
    found = (_stretch(layers, layer) for layer in layers.values() if layer.groups == 1 and _is_open(layer))
    return [stretch for stretch in found if stretch is not None]


def _stretch(layers: Mapping[Op, Layer], first: Layer) -> Stretch | None:
    """That behind a layer; None if something reads the channels that cannot be given more of them."""
    axis, product = first.output_axis, first.op.outputs[0]
    stretch = Stretch(first, tensors={product: axis} if product is not None else {})
    pending = [first.result]
    for value in pending:
        stretch.tensors[value] = axis
        if value.is_output or len(value.type.shape or ()) <= axis:
            return None
        for op, port in value.uses:
            layer = layers.get(op)
            if port != 0 or (layer is not None and (layer.input_axis != axis or not _is_open(layer))):
                return None
            if layer is not None and layer.groups == 1:
                stretch.last.append(layer)
            elif layer is not None and is_depthwise(op):
                stretch.depthwise.append(layer)
                pending.append(layer.result)
            elif layer is None and (carried := _carried(op, axis)) is not None:
                pending.append(carried)
            else:
                return None
    return stretch if stretch.last else None


def _carried(op: Op, axis: int) -> Value | None:
    """The result of an op that has the channels of its input along the same axis, and scales as it does."""
    (result, *others), shape = op.outputs, op.inputs[0].type.shape  # type: ignore[union-attr]
    if not op.is_type(*_CARRYING) or any(others) or shape is None:
        return None
    numbers = np.arange(2).reshape([2 if index == axis else 1 for index in range(len(shape))])
    return result if ONE_INPUT[op.op_type](op, numbers) is not None else None


def _is_open(layer: Layer) -> bool:
    """Whether weight and bias are constants that can be given more channels."""
    bias = Constant.at(layer.weight.model, layer.op, _BIAS)
    has_other_bias = layer.bias is None and (bias is None or bias.value is not None)
    array = layer.weight.array
    return not has_other_bias and layer.weight.is_own and array.dtype == np.float32 and array.size > 0


def _output_axis(layer: Layer) -> int:
    axis = channel_axis(layer.op, layer.weight.constant)
    assert axis is not None
    return axis


def _input_axis(layer: Layer) -> int:
    return 1 - _output_axis(layer)


def _take(rewriter: Rewriter, constant: Constant, order: np.ndarray, factors: np.ndarray, axis: int) -> None:
    """Gives an op the elements of a constant in another order along an axis, times factors."""
    array, old = constant.array, constant.constant
    along = [-1 if index == axis else 1 for index in range(array.ndim)]
    taken = (np.take(array, order, axis) * factors.reshape(along)).astype(array.dtype)
    new = rewriter.add_constant(constant.op.graph, taken, f"{old.name}_split")
    rewriter.set_input(constant.op, constant.port, new)
    rewriter.drop_unread(old)
