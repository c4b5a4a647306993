"""One step of a recurrent op, by the equations of the ONNX operator specification."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from qc.ir.graph import Value

from .builder import Builder

State = tuple[Value | None, ...]  # what a step hands on: the hidden state first; None for zeros


@dataclass(frozen=True)
class Cell(ABC):
    """One direction of a recurrent op.

    Attributes:
        functions: op types of the gates and of the results, in the order of the specification.
        matrices: by which states are multiplied, shape (gates of it * hidden, hidden).
        bias: what is added to that product, shape (gates * hidden,), where it may not be added to that of
            the data.
        peepholes: what the state of an LSTM is multiplied by for its gates of input, output and forgetting,
            each of shape (hidden,), if there are any.
        batch: samples at once.
        hidden: units.
    """

    build: Builder
    functions: tuple[str, ...]
    matrices: tuple[Value, ...]
    bias: Value | None
    peepholes: tuple[Value, ...]
    batch: int
    hidden: int

    gates: ClassVar[int]
    defaults: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1
    parts: ClassVar[tuple[int, ...]] = ()  # gates of each matrix, if there are several
    has_bias: ClassVar[bool] = False

    @abstractmethod
    def step(self, data: Value, state: State) -> State:
        """The next state; ``data`` is the product of the data, shape (batch, gates * hidden)."""

    def product(self, state: Value, matrix: Value) -> Value:
        """Of a state and a matrix, and the bias."""
        rows = (matrix.type.shape or (0,))[0]
        return self.build.gemm(state, matrix, self.bias, shape=(self.batch, rows), transB=1)

    def apply(self, op_type: str, *inputs: Value) -> Value:
        """An elementwise op on numbers of the hidden units."""
        return self.build.op(op_type, *inputs, shape=(self.batch, self.hidden))

    def sums(self, data: Value, hidden: Value | None) -> list[Value]:
        """Of the products of the data and of the state, gate by gate."""
        if hidden is not None:
            product = self.product(hidden, self.matrices[0])
            data = self.build.op("Add", data, product, shape=(self.batch, self.gates * self.hidden))
        return self.build.split(data, self.gates, axis=1)


class Rnn(Cell):
    """An Elman network."""

    gates, defaults = 1, ("Tanh",)

    def step(self, data: Value, state: State) -> State:
        return (self.apply(self.functions[0], *self.sums(data, state[0])),)


class Lstm(Cell):
    """Its gates are those of input, output and forgetting, and the new data."""

    gates, defaults, states = 4, ("Sigmoid", "Tanh", "Tanh"), 2

    def step(self, data: Value, state: State) -> State:
        hidden, cell = state
        _, of_data, of_result = self.functions
        taken, given, kept, new = self.sums(data, hidden)
        made = self.apply("Mul", self.gate(taken, 0, cell), self.apply(of_data, new))
        if cell is not None:
            made = self.apply("Add", self.apply("Mul", self.gate(kept, 2, cell), cell), made)
        return self.apply("Mul", self.gate(given, 1, made), self.apply(of_result, made)), made

    def gate(self, total: Value, index: int, cell: Value | None) -> Value:
        """How far a gate is open, which may depend on the state."""
        if self.peepholes and cell is not None:
            total = self.apply("Add", total, self.apply("Mul", cell, self.peepholes[index]))
        return self.apply(self.functions[0], total)


class Gru(Cell):
    """With the reset in front of the product of the state."""

    gates, defaults = 3, ("Sigmoid", "Tanh")
    parts: ClassVar[tuple[int, ...]] = (2, 1)

    def step(self, data: Value, state: State) -> State:
        hidden, of_gates = state[0], self.functions[0]
        update, reset, new = self.build.split(data, self.gates, axis=1)
        if hidden is not None:
            products = self.build.split(self.product(hidden, self.matrices[0]), 2, axis=1)
            update, reset = (self.apply("Add", *pair) for pair in zip((update, reset), products, strict=True))
            kept = self.apply("Mul", self.apply(of_gates, reset), hidden)
            new = self.apply("Add", new, self.product(kept, self.matrices[1]))
        return (self.mixed(update, new, hidden),)

    def mixed(self, update: Value, new: Value, hidden: Value | None) -> Value:
        """``new + update * (hidden - new)``, behind the functions of both."""
        share, made = self.apply(self.functions[0], update), self.apply(self.functions[1], new)
        if hidden is None:
            return self.apply("Sub", made, self.apply("Mul", share, made))
        return self.apply("Add", made, self.apply("Mul", share, self.apply("Sub", hidden, made)))


class LinearGru(Gru):
    """With the reset behind the product of the state and its bias (``linear_before_reset``)."""

    parts, has_bias = (), True

    def step(self, data: Value, state: State) -> State:
        hidden = state[0]
        update, reset, new = self.build.split(data, self.gates, axis=1)
        product = None
        if hidden is not None:
            *products, product = self.build.split(self.product(hidden, self.matrices[0]), 3, axis=1)
            update, reset = (self.apply("Add", *pair) for pair in zip((update, reset), products, strict=True))
        elif self.bias is not None:
            update, reset, product = self.with_bias(update, reset)
        if product is not None:
            new = self.apply("Add", new, self.apply("Mul", self.apply(self.functions[0], reset), product))
        return (self.mixed(update, new, hidden),)

    def with_bias(self, update: Value, reset: Value) -> tuple[Value, Value, Value]:
        """Both gates behind a state of zeros, and the product of the third one, which is its bias."""
        assert self.bias is not None and self.bias.const is not None
        array = self.bias.const.numpy().reshape(self.gates, -1)
        of_update, of_reset, of_new = (self.build.constant(row, "bias") for row in array)
        return self.apply("Add", update, of_update), self.apply("Add", reset, of_reset), of_new
