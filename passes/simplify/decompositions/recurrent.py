"""Recurrent ops as the steps of their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Writer, lengths_of
from .cells import Cell, Gru, LinearGru, Lstm, Rnn, State

# Inputs that RNN, GRU and LSTM have alike, and those of LSTM alone.
_X, _W, _R, _B, _LENGTHS, _H, _C, _P = range(8)
_RANK = 3  # of data: steps, batch, size
_CONSTANTS = (_W, _R, _B, _P)
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# Functions without parameters by the names of activations, whose case does not matter.
_FUNCTIONS = {name.lower(): name for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
_LIMITS = ("clip", "input_forget", "layout", "activation_alpha", "activation_beta")


def unrolled(op: Op, most_steps: int) -> Writer | None:
    """A cell for each step; the data of all steps is multiplied at once.

    Args:
        op: an RNN, a GRU or an LSTM.
        most_steps: of longer data nothing is made.

    Returns:
        None for free lengths, weights that are no constants, clipping, and functions with parameters.
    """
    layer = _Layer.of(op, most_steps)
    return partial(_write, layer, op.outputs) if layer is not None else None


def advice(op: Op) -> str:
    """What would let an op that stays whole be written in steps, in words; empty if nothing is known.

    Args:
        op: an RNN, a GRU or an LSTM.
    """
    data, *_, lengths = [*op.inputs, *(None for _ in range(_LENGTHS))][: _LENGTHS + 1]
    if data is None or lengths is None or fixed_constant(lengths) is not None:
        return ""
    steps = (data.type.shape or (None,))[0]
    given = lengths.original
    is_one = given in given.graph.inputs and (given.type.shape or (None,))[0] in (1, None)
    fixed = f"--fix-input {given.name}={steps if isinstance(steps, int) else 'STEPS'} says so"
    mend = fixed if is_one else "export it without them"
    return f"the lengths of its sequences, '{given.name}', are data: where all samples have all steps, {mend}"


def _write(layer: _Layer, wanted: Sequence[Value | None], build: Builder) -> list[Value | None]:
    data = layer.inputs[_X]
    assert data is not None
    rows = build.reshape(data, (layer.steps * layer.batch, layer.size))
    runs = [layer.run(build, rows, direction) for direction in range(len(layer.backward))]
    shape = (len(runs), layer.batch, layer.hidden)
    made: list[Value | None] = [None]
    if wanted[0] is not None:
        every = [layer.in_order(build, hidden, direction) for direction, (hidden, _) in enumerate(runs)]
        made = [build.concat(every, 1, (layer.steps, *shape))]
    for index, result in enumerate(wanted[1:]):
        lasts = [build.reshape(last, (1, *shape[1:])) for _, state in runs if (last := state[index])]
        made.append(build.concat(lasts, 0, shape) if result is not None else None)
    return made


@dataclass(frozen=True)
class _Layer:
    """What a recurrent op is made of; ``backward`` tells of each direction whether it begins at the end."""

    kind: type[Cell]
    inputs: Sequence[Value | None]
    weights: Mapping[int, np.ndarray]
    functions: tuple[str, ...]
    backward: tuple[bool, ...]
    steps: int
    batch: int
    size: int

    @property
    def hidden(self) -> int:
        """Units."""
        return self.weights[_R].shape[-1]

    @classmethod
    def of(cls, op: Op, most_steps: int) -> _Layer | None:
        """The layer that an op is, if it can be written in steps."""
        inputs = [*op.inputs, *(None for _ in range(8))][:8]
        for port in (_H, _C):
            if _is_zero(inputs[port]):
                inputs[port] = None  # no products of it
        lengths = lengths_of(inputs[_X])
        known = {port: fixed_constant(value) for port in _CONSTANTS if (value := inputs[port]) is not None}
        if lengths is None or len(lengths) != _RANK or None in known.values() or 0 in lengths:
            return None  # a branch that never runs may hold shapes that no such op takes
        if lengths[0] > most_steps:
            return None
        kind = _kind(op)
        backward = _DIRECTIONS[op.attribute("direction", "forward")]
        functions = _functions(op, kind.defaults * len(backward))
        is_limited = any(op.attribute(name) for name in _LIMITS)
        if functions is None or is_limited or not _are_all(inputs[_LENGTHS], lengths[0]):
            return None
        weights = {port: tensor.numpy() for port, tensor in known.items() if tensor is not None}
        found = cls(kind, inputs, weights, functions, backward, *lengths)
        return found if found.fits() else None

    def fits(self) -> bool:
        """Whether the weights have the shapes that they must have."""
        count, rows, hidden = len(self.backward), self.kind.gates * self.hidden, self.hidden
        wanted = {_W: (rows, self.size), _R: (rows, hidden), _B: (2 * rows,), _P: (3 * hidden,)}
        return all(array.shape == (count, *wanted[port]) for port, array in self.weights.items())

    def run(self, build: Builder, rows: Value, direction: int) -> tuple[list[Value], State]:
        """The hidden states, in the order of the steps that make them, and the last state."""
        cell, bias = self.cell(build, direction), self.bias_of_data(direction)
        weight = build.constant(self.weights[_W][direction], "W")
        added = build.constant(bias, "B") if bias is not None else None
        shape = self.steps * self.batch, self.kind.gates * self.hidden
        products = build.gemm(rows, weight, added, shape=shape, transB=1)
        steps = build.split(products, self.steps, axis=0)
        state = tuple(self.first(build, port, direction) for port in (_H, _C)[: cell.states])
        found = []
        for data in reversed(steps) if self.backward[direction] else steps:
            state = cell.step(data, state)
            assert state[0] is not None
            found.append(state[0])
        return found, state

    def cell(self, build: Builder, direction: int) -> Cell:
        """The cell of one direction, with its constants."""
        matrix, count = self.weights[_R][direction], len(self.functions) // len(self.backward)
        peepholes = np.split(self.weights[_P][direction], 3) if _P in self.weights else ()
        ends = np.cumsum(self.kind.parts[:-1], dtype=int) * self.hidden
        return self.kind(
            build,
            self.functions[direction * count :][:count],
            tuple(build.constant(part, "R") for part in np.split(matrix, ends)),
            build.constant(self.biases(direction)[1], "Rb") if self.has_own_bias else None,
            tuple(build.constant(weights, "P") for weights in peepholes),
            self.batch,
            self.hidden,
        )

    @property
    def has_own_bias(self) -> bool:
        """Whether the bias of states stays with their product."""
        return self.kind.has_bias and _B in self.weights

    def biases(self, direction: int) -> np.ndarray:
        """Those of the data and of the state, shape (2, gates * hidden)."""
        return self.weights[_B][direction].reshape(2, -1)

    def bias_of_data(self, direction: int) -> np.ndarray | None:
        """What is added to the product of the data."""
        if _B not in self.weights:
            return None
        biases = self.biases(direction)
        return biases[0] if self.has_own_bias else biases.sum(0)

    def first(self, build: Builder, port: int, direction: int) -> Value | None:
        """A state at the beginning, shape (batch, hidden); None for zeros."""
        given = self.inputs[port]
        if given is None:
            return None
        parts = build.split(given, len(self.backward), axis=0)
        return build.reshape(parts[direction], (self.batch, self.hidden))

    def in_order(self, build: Builder, hidden: list[Value], direction: int) -> Value:
        """The hidden states of all steps, shape (steps, 1, batch, hidden)."""
        ordered = hidden[::-1] if self.backward[direction] else hidden
        joined = build.concat(ordered, 0, (self.steps * self.batch, self.hidden))
        return build.reshape(joined, (self.steps, 1, self.batch, self.hidden))


def _kind(op: Op) -> type[Cell]:
    if op.is_type("GRU"):
        return LinearGru if op.attribute("linear_before_reset", 0) else Gru
    return Lstm if op.is_type("LSTM") else Rnn


def _functions(op: Op, defaults: tuple[str, ...]) -> tuple[str, ...] | None:
    """The op types of all activations; None if one is not known."""
    found = tuple(_FUNCTIONS.get(name.lower(), "") for name in op.attribute("activations", defaults))
    return found if len(found) == len(defaults) and all(found) else None


def _is_zero(state: Value | None) -> bool:
    """Whether a state is a constant of zeros, as exporters write it where none was given."""
    known = fixed_constant(state)
    return known is not None and not known.numpy().any()


def _are_all(lengths: Value | None, steps: int) -> bool:
    """Whether all samples have so many steps."""
    if lengths is None:
        return True
    known = fixed_constant(lengths)
    return known is not None and bool(np.all(known.numpy() == steps))
