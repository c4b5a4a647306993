"""Recognizes scales and shifts, such as batch normalizations, that were folded into the weights before them.

The folding is done again, and only if its result is what the second model holds is it told as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import bias_port, weight_port
from qc.ir.graph import Op

from .contents import Contents, is_stored
from .numbers import limited, real_values, rounding_error
from .wiring import GraphWiring, Read

_AFFINE = "BatchNormalization", "Mul", "Add", "Identity"
_RELATIVE = 1e-4  # of the largest number: folding in another order or precision gives other last digits


@dataclass(frozen=True)
class Fold:
    """Ops of the first model that became part of the weights of the op before them.

    Attributes:
        into: that op.
        ports: its inputs that took them in: weight and bias.
        results: what the second model reads there.
    """

    into: Op
    ports: tuple[int, int]
    results: tuple[Read, ...]


@dataclass(frozen=True)
class Folding:
    """Looks for folded ops between two aligned graphs.

    Attributes:
        partners: the paired ops of the second graph by op of the first.
    """

    a: GraphWiring
    b: GraphWiring
    partners: Mapping[Op, Op]
    contents: Contents

    def chains(self, removed: Sequence[Op]) -> Iterator[list[Op]]:
        """What may have been folded of some removed ops: rows of them, each behind an op with weights."""
        free = set(removed)
        for op in removed:
            producer = self._producer(self._data(op)) if op.is_type(*_AFFINE) else None
            if producer in self.partners:
                chain = [op]
                while (after := self._only_user(chain[-1])) in free and after.is_type(*_AFFINE):
                    chain.append(after)
                yield chain

    def _only_user(self, op: Op) -> Op | None:
        """The op that alone reads the result of another."""
        result = self.a.results[op][0]
        if result is None or result in self.a.given_as:
            return None
        users = self.a.users.get(result, ())
        return users[0].op if len(users) == 1 else None

    def find(self, removed: Sequence[Op]) -> Fold | None:
        """How a chain of removed ops was folded; None if it was not, or not surely."""
        into = self._producer(self._data(removed[0]))
        partner = self.partners.get(into) if into is not None else None
        if into is None or partner is None or not self._is_chain(removed):
            return None
        ports = weight_port(into), bias_port(into)
        if not into.is_type("Conv", "ConvTranspose", "Gemm") or ports[0] is None or ports[1] is None:
            return None
        if into.attribute("alpha", 1.0) != 1.0 or into.attribute("beta", 1.0) != 1.0:
            return None
        try:
            return self._checked(removed, into, partner, (ports[0], ports[1]))
        except (UsageError, ValueError):  # scales or shapes that do not fit, or no numbers at all
            return None

    def _checked(self, removed: Sequence[Op], into: Op, partner: Op, ports: tuple[int, int]) -> Fold | None:
        weight, bias = (self._numbers(self.a, into, port) for port in ports)
        if weight is None:
            return None
        lead = _channel_axis(into)
        channels = weight.shape[lead] * (into.attribute("group", 1) if lead and weight.ndim > 2 else 1)
        scale, shift = np.ones(channels), np.zeros(channels) if bias is None else bias.astype(np.float64)
        for op in removed:
            factor, term = self._affine(op, weight.ndim, channels)
            scale, shift = scale * factor, shift * factor + term
        results = tuple(read for port in ports if (read := _at(self.b, partner, port)) is not None)
        weight_read, bias_read = (_at(self.b, partner, port) for port in ports)
        # Beside codes a bias may hold what rounding shifts means by, too: the scales tell enough.
        is_sure = bool(np.any(scale != 1)) and is_stored(weight_read) and bias_read is not None
        close = self._is_close(_scaled(weight, scale, lead), weight_read)
        close = close and (is_sure or self._is_close(shift, bias_read))
        return Fold(into, ports, results) if close else None

    def _is_chain(self, ops: Sequence[Op]) -> bool:
        return all(self._producer(self._data(after)) is before for before, after in pairwise(ops))

    def _producer(self, read: Read | None) -> Op | None:
        return self.a.producer.get(read.value) if read is not None else None

    def _data(self, op: Op) -> Read | None:
        """The only input that is not constant."""
        varying = [r for r in self.a.reads[op] if r is not None and self.contents.data(r.value) is None]
        return varying[0] if len(varying) == 1 else None

    def _affine(self, op: Op, rank: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift of an op by channel; raises ValueError if it does something else."""
        if op.is_type("BatchNormalization"):
            found = [self._numbers(self.a, op, port) for port in range(1, 5)]
            gamma, beta, mean, variance = (x.astype(np.float64) for x in found if x is not None)
            factor = gamma / np.sqrt(variance + op.attribute("epsilon", 1e-5))
            return factor, beta - mean * factor
        if not op.is_type(*_AFFINE):
            raise ValueError(op.op_type)
        constants = (self._numbers(self.a, op, port) for port in range(op.num_inputs))
        constant = next((x for x in constants if x is not None), np.ones(()))
        spread = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
        if any(size != 1 for axis, size in enumerate(spread.shape) if axis != 1):
            raise ValueError("not by channel")
        numbers = np.broadcast_to(spread.reshape(-1).astype(np.float64), (channels,))
        return (np.ones(channels), numbers) if op.is_type("Add") else (numbers, np.zeros(channels))

    def _numbers(self, scope: GraphWiring, op: Op, port: int) -> np.ndarray | None:
        read = _at(scope, op, port)
        data = self.contents.data(read.value) if read is not None else None
        return real_values(read, data) if read is not None and data is not None else None

    def _is_close(self, expected: np.ndarray, read: Read | None) -> bool:
        data = self.contents.data(read.value) if read is not None else None
        if read is None or data is None:
            return not expected.any()
        if data.shape != expected.shape:
            return False
        tolerance = rounding_error(read, data) + _RELATIVE * np.abs(expected).max(initial=0)
        error = real_values(read, data) - limited(expected, read, data)
        return bool((np.abs(error) <= tolerance).all())


def _at(scope: GraphWiring, op: Op, port: int) -> Read | None:
    reads = scope.reads[op]
    return reads[port] if port < len(reads) else None


def _channel_axis(op: Op) -> int:
    """The axis of the output channels of a weight; of those within a group for a ConvTranspose."""
    if op.is_type("Gemm"):
        return 0 if op.attribute("transB", 0) else 1
    return 1 if op.is_type("ConvTranspose") else 0


def _scaled(weight: np.ndarray, scale: np.ndarray, axis: int) -> np.ndarray:
    """A weight times a scale by output channel; the groups of a ConvTranspose follow each other on axis 0."""
    groups = len(scale) // weight.shape[axis]
    if groups == 1:
        return weight * scale.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    factors = scale.reshape(groups, 1, -1, *(1,) * (weight.ndim - 2))
    return (parts * factors).reshape(weight.shape)
