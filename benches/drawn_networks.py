"""Random small networks of the ops that exporters write, of two to five axes.

Each follows from its number. Weights have channels that differ up to 64 times in size, constants are of one
number, of one for each channel, or of one along the last axis, and below 0 in a third of the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from drawn_layers import LAYERS, Shape
from networks import Builder
from onnx import ModelProto, TensorProto, helper

_LARGEST = 20_000  # numbers of a tensor


class Drawing(Builder):
    """A network that grows by one layer at a time. Layers return the name of what they make, or None.

    Args:
        seed: its number.
        batch: how many elements the model takes at once, of whatever number: no layer changes the first axis
            then, whose length no other should have. 0 for small numbers, and layers that may.
    """

    def __init__(self, seed: int, batch: int = 0) -> None:
        super().__init__(seed)
        self.free = batch
        axes, batch = self.one_of([2, 3, 4, 4]), batch or self.one_of([1, 1, 2])
        first = {
            2: (batch if self.free else 4 * batch, 16),
            3: (batch, self.one_of([8, 16]), self.one_of([8, 12, 16])),
            4: (batch, self.one_of([3, 4, 8]), 8, self.one_of([6, 8])),
        }[axes]
        self.shapes: dict[str, Shape] = {"x": first}
        last = "x"
        for _ in range(int(self.random.integers(3, 9))):
            last = self._next(last)
        self.last = last

    def _next(self, source: str) -> str:
        """A layer behind a tensor; the tensor itself where none that was tried fits."""
        for _ in range(20):
            nodes, weights, known = len(self.nodes), len(self.weights), len(self.shapes)
            made = self.one_of(LAYERS)(self, source)
            if made is not None and self._is_fitting(self.shapes[made]):
                return made
            del self.nodes[nodes:], self.weights[weights:]
            self.shapes = dict(list(self.shapes.items())[:known])
        return source

    def _is_fitting(self, shape: Shape) -> bool:
        keeps_batch = not self.free or shape[0] == self.free
        return keeps_batch and prod(shape) <= _LARGEST and len(shape) <= 5

    def one_of(self, choices: Sequence[Any]) -> Any:
        """One of several, each as likely."""
        return choices[int(self.random.integers(len(choices)))]

    def happens(self, share: float) -> bool:
        """Whether something is so that is so in a share of the cases."""
        return bool(self.random.random() < share)

    def op(self, op_type: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> str:
        """Adds an op of one result, whose shape is known."""
        made = self.node(op_type, *inputs, **attributes)
        self.shapes[made] = tuple(int(length) for length in shape)
        return made

    def integers(self, *numbers: int) -> str:
        """A constant of int64."""
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape: int, axis: int) -> str:
        """Of normal numbers, in channels along an axis that differ in size."""
        along = [shape[axis] if place == axis else 1 for place in range(len(shape))]
        size = np.exp2(self.random.uniform(-3, 3, along)) / np.sqrt(prod(shape) / shape[axis])
        return self.constant((self.random.normal(size=shape) * size).astype(np.float32))

    def factors(self, *shape: int) -> str:
        """Between 0.5 and 2, a third of them below 0."""
        numbers = self.random.uniform(0.5, 2, shape) * self.random.choice([1, 1, -1], shape)
        return self.constant(numbers.astype(np.float32))

    def positives(self, *shape: int) -> str:
        """Between 0.5 and 2."""
        return self.constant(self.random.uniform(0.5, 2, shape).astype(np.float32))

    def others(self, source: str, shape: Callable[[Shape], bool]) -> list[str]:
        """Other tensors of such shapes."""
        return [name for name, known in self.shapes.items() if name != source and shape(known)]

    def model(self) -> ModelProto:
        """The float model, opset 20, with one output, or two where something else is not read."""
        read = {name for node in self.nodes for name in node.input}
        unread = [name for name in self.shapes if name not in read and name not in ("x", self.last)]
        outputs = [self.last, *unread[:1]] if self.happens(0.5) else [self.last]
        first = ["batch"] if self.free else []
        x, *made = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [*first, *self.shapes[name][len(first) :]])
            for name in ("x", *outputs)
        )
        graph = helper.make_graph(self.nodes, "drawn", [x], made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def feeds(self, count: int, batch: int = 0) -> list[dict[str, np.ndarray]]:
        """Normal numbers, for another length of a free batch if one is given."""
        random, shape = np.random.default_rng(0), self.shapes["x"]
        shape = (batch, *shape[1:]) if batch else shape
        return [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(count)]
