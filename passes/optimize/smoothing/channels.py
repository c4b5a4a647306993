"""Where the channels of a tensor may be scaled, so that the results of the model stay what they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qc.ir.facts.op_traits import measures_batch, reads_shape_only, traits
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model
from qc.ir.quant.spec import PerChannel, QuantSpec
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape

from ..layers.constant import Constant
from ..layers.layer import Layer
from ..scaling.operators import ONE_INPUT, padded_to
from .gates import Gate, gate_at, is_gating

# Input ports of scale and bias of normalizations that ONNX does not define.
_OTHER_NORMALIZATIONS = {
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
}


@dataclass(frozen=True)
class Divided:
    """A constant whose numbers along an axis, counted from the end, are divided by the scales of channels."""

    constant: Constant
    axis: int

    def divide(self, rewriter: Rewriter, scale: np.ndarray) -> None:
        """Divides by one number for each channel; in an action. What is 0 everywhere stays as it is."""
        array = self.constant.array
        if array.any():
            divided = array / scale.reshape(-1, *(1,) * (-1 - self.axis))
            self.constant.set(rewriter, divided.astype(array.dtype))


@dataclass(frozen=True)
class Channels:
    """Channels of a tensor that are divided where they are made, and multiplied in all layers that read them.

    Attributes:
        value: the tensor.
        source: the layer that makes it, if its weight is what is divided.
        divided: the constants that are divided beside that. Without these and a source, it is divided by a
            Mul of its own in front of the layers.
        readers: the layers that read the channels, here or behind ops that scales pass through.
        scaled: the tensor and those between, each with the axis of its channels.
        gates: functions that need what is scaled as it was, and multiply it.
    """

    value: Value
    source: Layer | None
    divided: tuple[Divided, ...]
    readers: tuple[Layer, ...]
    scaled: tuple[tuple[Value, int], ...]
    gates: tuple[Gate, ...] = ()

    def scale(self, rewriter: Rewriter, scale: np.ndarray) -> None:
        """Divides each channel by a positive number; in an action.

        Args:
            scale: float64, shape ``(channels,)``.
        """
        if self.source is not None:
            matrix = self.source.matrix
            self.source.with_matrix(rewriter, matrix / scale.reshape(*matrix.shape[:2], 1))
            bias = self.source.bias
            if bias is not None and bias.value is not None:
                bias.set(rewriter, (bias.array / scale.reshape(bias.array.shape)).astype(bias.array.dtype))
        for one in self.divided:
            one.divide(rewriter, scale)
        if self.source is None and not self.divided:
            self._insert_product(rewriter, scale)
        for gate in self.gates:
            gate.restore(rewriter, scale.astype(self.readers[0].matrix.dtype))
        for reader in self.readers:
            reader.with_matrix(rewriter, reader.matrix * reader.by_feature(scale))

    def _insert_product(self, rewriter: Rewriter, scale: np.ndarray) -> None:
        value, first = self.value, self.readers[0]
        assert value.type.shape is not None
        behind = len(value.type.shape) - 1 - first.input_axis
        numbers = (1 / scale).astype(first.matrix.dtype).reshape(-1, *(1,) * behind)
        divided = rewriter.add_value(value.graph, f"{value.name}_smooth", value.type)
        constant = rewriter.add_constant(value.graph, numbers, f"{value.name}_scale")
        rewriter.add_op(value.graph, "Mul", [value, constant], [divided])
        for reader in self.readers:
            rewriter.set_input(reader.op, 0, divided)


def channels_of(
    model: Model, layers: Iterable[Layer], in_floats: bool = True, gates_only: bool = False
) -> list[Channels]:
    """Every tensor whose channels may be scaled, in topological order.

    No layer is among the readers of two: of several tensors, the one nearest to it counts. Scales pass
    functions that multiply their own argument, where that is on a grid and can be restored in front of them.

    Args:
        layers: those whose weight may be changed.
        in_floats: whether the target computes in floats as well, so that a product restores what a function
            reads; elsewhere a convolution does.
        gates_only: whether tensors count whose scales pass such functions, and no others.
    """
    by_op = {layer.op: layer for layer in layers}
    by_result = {layer.result: layer for layer in by_op.values() if _divides(layer)}
    restoring = _Restoring(in_floats, None if in_floats else _weight_of_convolutions(by_op.values()))
    settled: set[tuple[Value, int]] = set()  # whatever reaches these cannot be scaled, nor asked again
    taken: set[Layer] = set()
    chosen: list[Channels] = []
    results = reversed([value for op in model.graph.ops() for value in _results(op)])
    for value in _in_front_of_functions(results) if gates_only else results:
        made = _made(model, value, by_result)
        if made is None:
            continue
        found = _Readers.of(model, value, made[0], by_op, restoring, settled)
        if found is None or not taken.isdisjoint(found.layers):
            settled.add((value, made[0]))
            continue
        if not found.layers or (gates_only and not found.gates):
            continue
        settled.add((value, made[0]))
        taken.update(found.layers)
        divided = (*made[1], *found.divided)
        source = by_result.get(value)
        chosen.append(Channels(value, source, divided, tuple(found.layers), found.scaled, tuple(found.gates)))
    return chosen[::-1]


def _in_front_of_functions(values: Iterable[Value]) -> Iterator[Value]:
    """Those from which a way leads to an op that every gate has; the others would be followed for nothing.

    Args:
        values: those of a graph, each behind all that is made of it.
    """
    found: set[Value] = set()
    for value in values:
        readers = [use.op for use in value.uses]
        if any(is_gating(op) or not found.isdisjoint(_results(op)) for op in readers):
            found.add(value)
            yield value


def _divides(layer: Layer) -> bool:
    """Whether the channels of the result can be divided by way of weight and bias."""
    if layer.bias is None:  # of a MatMul nothing is added, others have a bias that is no vector
        return layer.op.is_type("MatMul")
    return not layer.bias.is_converted


def _results(op: Op) -> Iterator[Value]:
    return (value for value in op.outputs[:1] if value is not None)


def _made(
    model: Model, value: Value, layers: Mapping[Value, Layer]
) -> tuple[int, tuple[Divided, ...]] | None:
    """The axis of the channels of a tensor, counted from the end, and the constants to divide for them.

    None if they cannot be scaled where the tensor is made.
    """
    shape, op = value.type.shape, value.producer
    if shape is None or op is None:
        return None
    if value in layers:
        return layers[value].output_axis - len(shape), ()
    if op.is_type("Mul"):
        return _multiplied(model, op, shape)
    ports = _OTHER_NORMALIZATIONS.get(op.op_type, ())
    if not op.domain and not traits(op).product:
        trained = traits(op).trained
        ports = ports or tuple(trained[kind] for kind in ("weight", "bias") if kind in trained)
    axis = -1 if "Layer" in op.op_type or op.is_type("RMSNormalization") else 1 - len(shape)
    if not ports or op.attribute("axis", -1) not in (-1, len(shape) - 1) or measures_batch(op):
        return None
    constants = [Constant.at(model, op, port) for port in ports]
    found = tuple(Divided(one, -1) for one in constants if one is not None and one.value is not None)
    fits = all(one.constant.array.shape == (shape[axis],) for one in found)
    return (axis, found) if None not in constants and found and fits else None


def _multiplied(model: Model, op: Op, shape: Shape) -> tuple[int, tuple[Divided, ...]] | None:
    """Those of a product with one number for each channel."""
    for port in (0, 1):
        constant = Constant.at(model, op, port)
        if constant is None or constant.value is None:
            continue
        own = constant.array.shape
        axes = [axis - len(own) for axis, size in enumerate(own) if size > 1]
        if len(axes) == 1 and len(own) <= len(shape) and shape[axes[0]] == own[axes[0]]:
            return axes[0], (Divided(constant, axes[0]),)
    return None


class _Restoring(NamedTuple):
    """How what functions read is restored: by a product in float, by a convolution, or not at all."""

    by_product: bool
    weight: QuantSpec | None


def _weight_of_convolutions(layers: Iterable[Layer]) -> QuantSpec | None:
    """The format of weights of convolutions, if each channel has a scale; None if there are none such."""
    held = (layer.weight.quantizer for layer in layers if layer.op.is_type("Conv"))
    return next((one.spec for one in held if one is not None and one.spec.granularity == PerChannel(0)), None)


class _Readers:
    """The layers behind a tensor, and the constants that are added on the way."""

    def __init__(
        self, model: Model, layers: Mapping[Op, Layer], restoring: _Restoring, settled: Set[tuple[Value, int]]
    ) -> None:
        self.layers: list[Layer] = []
        self.divided: list[Divided] = []
        self.gates: list[Gate] = []
        self._model = model
        self._by_op = layers
        self._restoring = restoring
        self._settled = settled
        self._axes: dict[Value, int] = {}
        self._products: list[Op] = []

    @classmethod
    def of(
        cls,
        model: Model,
        value: Value,
        axis: int,
        layers: Mapping[Op, Layer],
        restoring: _Restoring,
        settled: Set[tuple[Value, int]],
    ) -> _Readers | None:
        """Those of a tensor; None if anything else reads its channels, or they are no graph's own.

        Args:
            axis: of the channels, counted from the end.
            settled: tensors behind which nothing can be scaled, each with such an axis.
        """
        found = cls(model, layers, restoring, settled)
        if not found._follow(value, axis):
            return None
        once = all(sum(one in found._axes for one in _inputs(op)) == 1 for op in found._products)
        return found if once else None

    @property
    def scaled(self) -> tuple[tuple[Value, int], ...]:
        """The tensors whose channels are scaled, with the axis of these."""
        return tuple((value, len(value.type.shape or ()) + axis) for value, axis in self._axes.items())

    def _follow(self, value: Value, axis: int) -> bool:
        """Whether all that reads a tensor can be told the scales of channels; chains may be of any length."""
        asked: list[tuple[Use, Value, int]] = []
        behind: tuple[Value, int] | bool = (value, axis)
        while behind:
            if isinstance(behind, tuple):
                uses = self._reached(*behind)
                if uses is None:
                    return False
                asked += [(use, *behind) for use in reversed(uses)]
            if not asked:
                return True
            behind = self._passes(*asked.pop())
        return False

    def _reached(self, value: Value, axis: int) -> list[Use] | None:
        """What reads a tensor and was not asked yet; None if its channels cannot be scaled."""
        if value in self._axes:
            return [] if self._axes[value] == axis else None
        if (value, axis) in self._settled or value.type.shape is None or value.is_output:
            return None
        if self._has_grid(value):
            return None
        self._axes[value] = axis
        return value.uses

    def _passes(self, use: Use, value: Value, axis: int) -> tuple[Value, int] | bool:
        """Whether a use can be told the scales of channels, or the tensor behind it that has to be asked."""
        op, shape = use.op, value.type.shape
        if reads_shape_only(op):
            return True
        layer = self._by_op.get(op)
        if layer is not None and use.port == 0:
            assert shape is not None
            self.layers.append(layer)
            return layer.input_axis - len(shape) == axis
        gate = self._gate(use, value, axis)
        if gate is not None and _has_as_many(gate.result, value, axis):
            self.gates.append(gate)
            return gate.result, axis
        results = list(_results(op))
        if len(results) != 1 or any(op.outputs[1:]):
            return False
        (result,) = results
        behind = self._axis_behind(use, value, axis, result.type.shape)
        return (result, behind) if behind is not None else False

    def _gate(self, use: Use, value: Value, axis: int) -> Gate | None:
        """The function of a tensor on a grid that multiplies it, if what it reads can be restored."""
        can_be = self._restoring.by_product or self._restoring.weight is not None
        if not can_be or not any(self._model.quant.quantizers_on(value)):
            return None
        return gate_at(use, value, axis, self._restoring.weight)

    def _axis_behind(self, use: Use, value: Value, axis: int, shape: Shape | None) -> int | None:
        """The axis of the channels in the result of a use; None if they do not come through."""
        op, port, own = use.op, use.port, value.type.shape
        assert own is not None
        if shape is None or not isinstance(port, int) or not isinstance(own[axis], int):
            return None
        if op.is_type(*ONE_INPUT) and port == 0:
            return _moved(op, axis, own)
        if len(shape) < -axis or own[axis] != shape[axis]:
            return None
        if op.is_type("Mul") or (op.is_type("Div") and port == 0):
            self._products.append(op)
            return axis
        return axis if op.is_type("Add", "Sub") and self._adds(use, value, axis) else None

    def _adds(self, use: Use, value: Value, axis: int) -> bool:
        """Whether a constant for each channel, or for all, is added, which is divided with them."""
        assert isinstance(use.port, int) and value.type.shape is not None
        constant = Constant.at(self._model, use.op, 1 - use.port)
        if constant is None or constant.value is None or constant.is_converted:
            return False
        own = constant.shape
        is_one = constant.value.const is not None and constant.array.size == 1
        if not is_one and (len(own) < -axis or own[axis] != value.type.shape[axis]):
            return False
        self.divided.append(Divided(constant, axis))
        return True

    def _has_grid(self, value: Value) -> bool:
        """Whether the grid of a tensor is known already, or given by what makes it."""
        held = self._model.quant.quantizers_on(value)
        return any(one.encoding is not None or one.spec.fixed_range is not None for one in held)


def _has_as_many(result: Value, value: Value, axis: int) -> bool:
    """Whether a tensor is no longer along an axis, counted from the end, than what it is made of."""
    own, shape = value.type.shape or (), result.type.shape or ()
    return min(len(own), len(shape)) >= -axis and own[axis] == shape[axis]


def _inputs(op: Op) -> tuple[Value | None, ...]:
    return op.inputs


def _moved(op: Op, axis: int, shape: Shape) -> int | None:
    """The axis of channels behind an op of one input; None if it does not keep them apart and in order."""
    length = shape[axis]
    assert isinstance(length, int)
    numbers = padded_to(np.arange(length).reshape(-1, *(1,) * (-1 - axis)), len(shape))
    passed = ONE_INPUT[op.op_type](op, numbers)
    if passed is None or length == 1 or length not in passed.shape:
        return None
    if not np.array_equal(passed.ravel(), np.arange(length)):
        return None
    return passed.shape.index(length) - passed.ndim
