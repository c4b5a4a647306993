"""Random small networks of the ops that exporters write, of two to five axes.

Each follows from its number. Weights have channels that differ up to 64 times in size, constants are of one
number, of one for each channel, or of one along the last axis, and below 0 in a third of the cases.
"""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import ModelProto, TensorProto, helper

from .drawing import Drawing, Shape
from .drawn_layers import LAYERS

_LARGEST = 20_000  # numbers of a tensor


class DrawnNetwork(Drawing):
    """A network that grows by one layer at a time; see :class:`Drawing` for its arguments."""

    def __init__(self, seed: int, batch: int = 0) -> None:
        super().__init__(seed, batch)
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
