"""A network that is drawn at random: what its layers are made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from .networks import Builder

Shape = tuple[int, ...]


class Drawing(Builder):
    """Ops whose shapes are known, constants of random numbers, and choices.

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
