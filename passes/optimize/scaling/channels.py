"""Which channels of a graph can be scaled, and which only together.

A layer may give each channel of its result any positive scale: its weight and bias are divided by it. What
reads the result must undo that: a layer, by multiplying its weight. In between stand ops that a scale passes,
such as Relu or MaxPool, ops that want one scale for all that they join, such as Add, and others that let none
pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qc.ir.facts.op_traits import reads_shape_only
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from ..layers.constant import Constant
from ..layers.layer import Layer
from .operators import ONE_INPUT, Numbers, padded_to, split
from .unions import Unions

_BIAS = 2  # its port
_SUMS = ("Add", "Mean", "Sub", "Sum")


@dataclass(frozen=True, eq=False)
class ScaledLayer:
    """A layer, and the numbers of the scales of its channels.

    Attributes:
        inputs: that of each input channel of each group; shape ``(groups, inputs / groups)``.
        outputs: that of each output channel; shape ``(groups, outputs / groups)``.
    """

    layer: Layer
    inputs: np.ndarray
    outputs: np.ndarray

    @property
    def magnitudes(self) -> np.ndarray:
        """The largest magnitude of the weight for each output and input; ``(groups, outputs, inputs)``."""
        matrix = np.abs(self.layer.matrix)
        return matrix.reshape(*self.outputs.shape, self.inputs.shape[1], -1).max(axis=3)


@dataclass(frozen=True, eq=False)
class Addend:
    """A constant that is added to what is scaled.

    Attributes:
        numbers: those of the scales; they broadcast to its shape, but for axes of length 1 in front.
    """

    constant: Constant
    numbers: np.ndarray


@dataclass
class Channels:
    """The scales of one graph: who has which, and how they hang together."""

    model: Model
    layers: list[ScaledLayer] = field(default_factory=list)
    addends: list[Addend] = field(default_factory=list)
    unions: Unions = field(default_factory=Unions)
    _numbers: dict[Value, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, graph: Graph) -> Channels:
        """Those of one graph, bodies inside left out."""
        found = cls(model)
        for op in graph.ops():
            found._visit(op)
        for value in graph.outputs:
            if value in found._numbers:
                found.unions.fix(found._numbers[value], f"'{value.name}' is an output of the graph")
        return found

    def _visit(self, op: Op) -> None:
        inputs = op.inputs
        numbers = [self._numbers.get(value) if value is not None else None for value in inputs]
        layer = self._layer(op)
        if layer is not None:
            results = [self._of_layer(layer, numbers[0])]
            numbers = numbers[1:]
        elif any(one is not None for one in numbers):
            results = list(self._results(op, numbers))
        else:
            results = []
        if reads_shape_only(op):
            return
        for result, made in zip(op.outputs, results, strict=False):
            if result is not None and made is not None:
                self._numbers[result] = made
        if layer is not None or not any(made is not None for made in results):
            self._fix(numbers, f"{op.label} lets no scale pass")
        captured = [self._numbers.get(value) for value in op.captures]
        self._fix(captured, f"{op.label} reads it in a body")

    def _fix(self, numbers: list[Numbers], reason: str) -> None:
        for one in numbers:
            if one is not None:
                self.unions.fix(one, reason)

    # -- layers -------------------------------------------------------------------------------------

    def _layer(self, op: Op) -> Layer | None:
        layer = Layer.of(self.model, op)
        if layer is None:
            return None
        array = layer.weight.array
        is_open = array.dtype == np.float32 and array.size > 0
        return layer if is_open and np.isfinite(array).all() else None

    def _of_layer(self, layer: Layer, given: Numbers) -> Numbers:
        groups, outputs, features = layer.matrix.shape
        kernel = (
            int(np.prod(layer.weight.array.shape[2:])) if layer.op.is_type("Conv", "ConvTranspose") else 1
        )
        shape = groups, features // kernel
        numbers = self.unions.new(groups, outputs)
        read = self._along(layer, given, groups * shape[1])
        self.layers.append(ScaledLayer(layer, read.reshape(shape), numbers))
        result = layer.op.outputs[0]
        assert result is not None and result.type.shape is not None
        lengths = [1] * len(result.type.shape)
        lengths[layer.output_axis] = groups * outputs
        made = numbers.reshape(lengths)
        if not layer.weight.is_own:
            self._fix([read, made], f"the weight of {layer.op.label} is read elsewhere, too")
        if layer.op.num_inputs > _BIAS and layer.op.inputs[_BIAS] is not None:
            bias = made.ravel() if len(lengths) > 2 else made  # that of Gemm may be a matrix
            if not self._adds(layer.op, _BIAS, bias):
                self.unions.fix(made, f"the bias of {layer.op.label} is computed, or one number for all")
        return made

    def _along(self, layer: Layer, given: Numbers, channels: int) -> np.ndarray:
        """The numbers of the input channels; new, fixed ones if the data has none along their axis."""
        fits = given is not None and layer.input_axis < given.ndim
        if given is not None and fits and given.size == given.shape[layer.input_axis] == channels:
            return given.ravel()
        fixed = self.unions.new(channels)
        self.unions.fix(fixed, "the data has no scales")
        if given is not None:
            self.unions.fix(given, f"{layer.op.label} reads it along other axes")
        return fixed

    def _adds(self, op: Op, port: int, numbers: np.ndarray) -> bool:
        """Whether the constant at an input can be divided by scales; it is kept in mind."""
        constant = Constant.at(self.model, op, port)
        if constant is None or constant.value is None or constant.array.dtype != np.float32:
            return False
        shape = constant.array.shape
        lengths = np.broadcast_shapes(shape, numbers.shape)
        if int(np.prod(lengths)) != constant.array.size or not np.isfinite(constant.array).all():
            return False
        self.addends.append(Addend(constant, numbers))
        return True

    # -- other ops ----------------------------------------------------------------------------------

    def _results(self, op: Op, numbers: list[Numbers]) -> list[Numbers]:
        """Those of all results; all None if no scale passes."""
        result = op.outputs[0]
        rank = result.type.rank if result is not None else None
        if rank is None or op.domain:
            return []
        if op.is_type(*_SUMS):
            return [self._sum(op, numbers, rank)]
        if op.is_type("Mul", "Div"):
            return [self._product(op, numbers, rank)]
        if op.is_type("Concat"):
            return [self._concatenated(op, numbers, rank)]
        if op.is_type("MatMul"):
            return [self._mixed(op, numbers, rank)]
        first = numbers[0]
        if first is None:
            return []
        self._fix(numbers[1:], f"{op.label} reads it as a parameter")
        if op.is_type("Split"):
            return list(split(op, first))
        passing = ONE_INPUT.get(op.op_type)
        return [passing(op, first)] if passing is not None else []

    def _sum(self, op: Op, numbers: list[Numbers], rank: int) -> Numbers:
        """All that is added has one scale; a constant is divided by it."""
        scaled = [padded_to(one, rank) for one in numbers if one is not None]
        total = scaled[0]
        for other in scaled[1:]:
            self.unions.join(total, other)
            total = np.broadcast_arrays(total, other)[0]
        unscaled = [port for port, one in enumerate(numbers) if one is None]
        return total if all(self._adds(op, port, total) for port in unscaled) else None

    def _product(self, op: Op, numbers: list[Numbers], rank: int) -> Numbers:
        """The scale of one factor, where the others have none; of a quotient that of what is divided."""
        first, second = numbers
        if first is None and op.is_type("Div"):
            return None
        if first is not None and second is not None:
            self.unions.fix(second, f"{op.label} multiplies or divides by it")
        chosen = first if first is not None else second
        return padded_to(chosen, rank) if chosen is not None else None

    def _mixed(self, op: Op, numbers: list[Numbers], rank: int) -> Numbers:
        """Of a product of two matrices that are computed, such as attention: the scales of columns pass."""
        first, second = numbers
        if second is None or second.ndim < 2 or second.shape[-2] != 1 or second.ndim != rank:
            return None
        self._fix([first], f"{op.label} sums over it")
        return second

    def _concatenated(self, op: Op, numbers: list[Numbers], rank: int) -> Numbers:
        """Each part has its own scales; those without any stay so."""
        axis, parts = op.attribute("axis", 0) % rank, []
        for value, one in zip(op.inputs, numbers, strict=True):
            shape = value.original.type.shape if value is not None else None
            length = shape[axis] if shape is not None else None
            if not isinstance(length, int):
                return None
            if one is None:
                one = self.unions.new(*[1] * rank)
                self.unions.fix(one, f"{op.label} joins it with what has no scales")
            parts.append(np.repeat(one, length, axis) if one.shape[axis] == 1 else one)
        others = [[part.shape[i] for i in range(part.ndim) if i != axis] for part in parts]
        lengths = list(np.broadcast_shapes(*map(tuple, others)))
        shapes = [[*lengths[:axis], part.shape[axis], *lengths[axis:]] for part in parts]
        return np.concatenate([np.broadcast_to(*both) for both in zip(parts, shapes, strict=True)], axis)
