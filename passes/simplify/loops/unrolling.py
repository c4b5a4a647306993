"""The iterations of a Loop or Scan, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qc.ir.body_rewriter import BodyRewriter
from qc.ir.graph import Op, Value

from ..decompositions.builder import Builder
from .iterations import CONDITION, ITERATION, numbered

_LEADING = CONDITION + 1  # inputs of a Loop, and of its body, before what it carries


def unroll(rewriter: BodyRewriter, op: Op, count: int) -> None:
    """Puts the ops of all iterations in the place of a loop.

    Args:
        op: a Loop or Scan that runs ``count`` times, at least once.
    """
    (body,) = op.subgraphs.values()
    build = Builder(rewriter, op)
    write = _ScanWriter(op, build, count) if op.is_type("Scan") else _LoopWriter(op, build)
    constants = {
        value: build.constant(value.const, value.name) for value in body.values() if value.const is not None
    }
    states, rows = list(write.states), list[Sequence[Value]]()
    for iteration in range(count):
        given = dict(zip(body.inputs, write.inputs(iteration, states), strict=True))
        given_back = rewriter.copy_body(body, {**constants, **given})[write.leading_outputs :]
        states, rows = given_back[: len(states)], [*rows, given_back[len(states) :]]
    results = op.outputs
    for result, last in zip(results, states, strict=False):
        if result is not None:
            rewriter.give_result(result, last)
    for place, result in enumerate(results[len(states) :]):
        if result is not None and result.is_read:
            rewriter.give_result(result, write.stack(place, [row[place] for row in rows]))
    rewriter.erase_op(op)
    build.drop_unread()


@dataclass(frozen=True)
class _LoopWriter:
    """What a Loop gives its body, and makes of what that gives back."""

    op: Op
    build: Builder
    leading_outputs = 1  # the condition

    @property
    def states(self) -> Sequence[Value]:
        """What it begins with."""
        return [value for value in self.op.inputs[_LEADING:] if value is not None]

    def inputs(self, iteration: int, states: Sequence[Value]) -> list[Value]:
        """What the body takes in an iteration."""
        (body,) = self.op.subgraphs.values()
        number = self.build.constant(numbered(body.inputs[ITERATION], iteration), "iteration")
        goes_on = numbered(body.inputs[CONDITION], 1).astype(bool)
        return [number, self.build.constant(goes_on, "condition"), *states]

    def stack(self, place: int, parts: Sequence[Value]) -> Value:
        """One tensor of what the body gives back in all iterations."""
        return _stacked(self.build, parts, axis=0)


@dataclass(frozen=True)
class _ScanWriter:
    """What a Scan gives its body, and makes of what that gives back."""

    op: Op
    build: Builder
    count: int
    leading_outputs = 0

    @property
    def states(self) -> Sequence[Value]:
        """What it begins with."""
        return self._given()[: -self._scanned]

    def inputs(self, iteration: int, states: Sequence[Value]) -> list[Value]:
        """What the body takes in an iteration."""
        axes = self._each("scan_input_axes", self._scanned)
        backward = self._each("scan_input_directions", self._scanned)
        scanned, last = self._given()[-self._scanned :], self.count - 1
        places = [last - iteration if back else iteration for back in backward]
        return [*states, *map(self._slice, scanned, axes, places)]

    def stack(self, place: int, parts: Sequence[Value]) -> Value:
        """One tensor of what the body gives back in all iterations."""
        stacks = self.op.num_outputs - len(self.states)
        axis = self._each("scan_output_axes", stacks)[place]
        is_backward = self._each("scan_output_directions", stacks)[place]
        return _stacked(self.build, parts[::-1] if is_backward else parts, axis)

    @property
    def _scanned(self) -> int:
        return self.op.attribute("num_scan_inputs")

    def _given(self) -> list[Value]:
        return [value for value in self.op.inputs if value is not None]

    def _each(self, name: str, count: int) -> list[int]:
        return self.op.attribute(name) or [0] * count

    def _slice(self, value: Value, axis: int, place: int) -> Value:
        index = self.build.constant(np.array(place), "place")
        return self.build.op("Gather", value, index, shape=None, type=value.type.elem_type, axis=axis)


def _stacked(build: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Parts along a new axis."""
    rows = [build.unsqueeze(part, [axis], None) for part in parts]
    kind = rows[0].type.elem_type
    return rows[0] if len(rows) == 1 else build.op("Concat", *rows, shape=None, type=kind, axis=axis)
