"""Units: what the target runs as one operator, and which of them run in integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.op_traits import is_grid_preserving, is_parameter
from qc.ir.region import Region

from ..target import OpRule, Target

_NUMBER_BLIND = ("Shape", "Size")  # ops that read a tensor's shape and not its numbers
# Numbers from here on stand for infinity, as in masks of attention: next to them float32 has no fractions.
_AS_INFINITE = 2.0**24
# Ops whose result can hold an infinity of any input; those that only move data take it from the first.
_PASSING = ("Add", "Cast", "CastLike", "Concat", "Mul", "Sub", "Sum", "Trilu", "Where")


@dataclass(frozen=True, eq=False)
class Unit:
    """A region that the target knows, or a single op, with the rule that it follows."""

    ops: tuple[Op, ...]
    rule: OpRule
    region: Region | None = None

    @property
    def root(self) -> Op:
        """The op that produces the result."""
        return self.ops[-1]

    @property
    def label(self) -> str:
        """How messages name the unit."""
        return f"{self.region.name} at {self.root.label}" if self.region is not None else self.root.label


class UnitMap:
    """The units of one graph, who makes and reads each value, and which units run in integers."""

    def __init__(
        self, model: Model, graph: Graph, target: Target, left_float: Mapping[Op, str] = MappingProxyType({})
    ) -> None:
        """Args: left_float: ops that run in float whatever the target says, with the reason."""
        self.graph = graph
        self._of_op: dict[Op, Unit] = {}
        self.data = _data_values(graph)
        self.infinite = _infinite_values(graph)
        for unit in _units(model, graph, target, left_float):
            self._of_op.update(dict.fromkeys(unit.ops, unit))
        self.units = list(dict.fromkeys(self._of_op[op] for op in _by_root(graph, self._of_op)))
        self.integer = {
            unit: None
            for unit in self.units
            if unit.rule.runs in ("integer", "between") and self._is_eligible(unit)
        }
        self._settle_between()

    def unit_of(self, op: Op) -> Unit:
        """The unit that ``op`` belongs to."""
        return self._of_op[op]

    def runs_integer(self, op: Op | None) -> bool:
        """Whether ``op`` exists and its unit runs in integers."""
        return op is not None and self._of_op[op] in self.integer

    def is_carry(self, op: Op | None) -> bool:
        """Whether ``op`` only moves data."""
        return op is not None and self._of_op[op].rule.runs == "carry"

    def inputs(self, unit: Unit) -> Iterator[tuple[Value, Op, int]]:
        """The float32 data that the unit reads from outside: (value, reading op, port).

        Neither parameters nor what can hold infinity are among them.
        """
        for op in unit.ops:
            for port, value in enumerate(self.graph.op_inputs(op)):
                if value is None or not self._has_grid(value) or is_parameter(op, port):
                    continue
                if self.graph.producer(value) not in unit.ops:
                    yield value, op, port

    def outputs(self, unit: Unit) -> list[Value]:
        """The float32 values that the unit makes and shows to others, without those that can be infinite."""
        made = [value for op in unit.ops for value in self.graph.op_outputs(op) if value is not None]
        return [
            value
            for value in made
            if self._has_grid(value) and not (unit.region is not None and unit.region.is_inner(value))
        ]

    def all_readers_integer(self, value: Value) -> bool:
        """Whether ``value`` is read, and every reader runs in integers (looking through data movers)."""
        pending, seen = [value], False
        while pending:
            current = pending.pop()
            if self.graph.is_output(current):
                return False
            for op, port in self.graph.uses(current):
                if op.is_type(*_NUMBER_BLIND):
                    continue
                if self.is_carry(op) and port == 0:
                    pending.extend(out for out in self.graph.op_outputs(op) if out is not None)
                elif not isinstance(port, int) or not self.runs_integer(op) or is_parameter(op, port):
                    return False
                seen = True
        return seen

    # -- internals ----------------------------------------------------------------------------------

    def _has_grid(self, value: Value) -> bool:
        return is_plain_float(value) and value not in self.infinite

    def _is_eligible(self, unit: Unit) -> bool:
        """Whether the unit computes float32 data from float32 data."""
        outputs = self.outputs(unit)
        given = [value for value, _, _ in self.inputs(unit)]
        return bool(outputs) and any(v in self.data for v in outputs) and any(v.const is None for v in given)

    def _settle_between(self) -> None:
        """Drops ``between`` units until each has integer producers and an integer reader.

        Decisions ripple in both directions, so sweeps forward and backward alternate until nothing changes.
        """
        if not any(unit.rule.runs == "between" for unit in self.integer):
            return
        while True:
            count = len(self.integer)
            self._sweep_forward()
            self._sweep_backward()
            if len(self.integer) == count:
                return

    def _sweep_forward(self) -> None:
        from_integer: set[Value] = set()
        for unit in self.units:
            given = [value for value, _, _ in self.inputs(unit) if value.const is None]
            if unit.rule.runs == "between" and not all(value in from_integer for value in given):
                self.integer.pop(unit, None)
            carried = unit.rule.runs == "carry" and bool(given) and given[0] in from_integer
            if carried or unit in self.integer:
                from_integer.update(self.outputs(unit))

    def _sweep_backward(self) -> None:
        read_by_integer: set[Value] = set()
        for unit in reversed(self.units):
            outputs = self.outputs(unit)
            is_read = any(value in read_by_integer for value in outputs)
            if unit.rule.runs == "between" and not is_read:
                self.integer.pop(unit, None)
            if unit in self.integer or (unit.rule.runs == "carry" and is_read):
                read_by_integer.update(value for value, _, _ in self.inputs(unit))


def is_plain_float(value: Value) -> bool:
    """Whether the value is a float32 tensor; 16-bit floats are left as they are."""
    return value.type.elem_type == TensorProto.FLOAT


def _units(model: Model, graph: Graph, target: Target, left_float: Mapping[Op, str]) -> Iterator[Unit]:
    def chosen(rule: OpRule, ops: tuple[Op, ...]) -> OpRule:
        why = next((left_float[op] for op in ops if op in left_float), None)
        return rule if why is None else rule.model_copy(update={"runs": "float", "why": why})

    claimed: set[Op] = set()
    for region in model.regions:
        known = target.region_rule(region.name)
        if region.graph is graph and known is not None:
            rule = chosen(known, region.ops)
            claimed.update(region.ops)
            if rule.runs == "float":
                yield from (Unit((op,), rule) for op in region.ops)
            else:
                yield Unit(region.ops, rule, region)
    for op in graph.ops():
        if op not in claimed:
            yield Unit((op,), chosen(target.rule_for(op.op_type, op.domain), (op,)))


def _by_root(graph: Graph, of_op: dict[Op, Unit]) -> list[Op]:
    """Ops such that units come in topological order: a unit counts where its last op stands."""
    return [op for op in graph.ops() if of_op[op].root is op]


def _data_values(graph: Graph) -> set[Value]:
    """Values that depend on the numbers of a graph input or a captured value, and not on shapes alone."""
    data = {value for value in graph.values() if value.captured is not None}
    data.update(value for value in graph.inputs if value.const is None)
    for op in graph.ops():
        read = [*graph.op_inputs(op), *graph.captures(op)]
        if not op.is_type(*_NUMBER_BLIND) and any(value in data for value in read):
            data.update(value for value in graph.op_outputs(op) if value is not None)
    return data


def _infinite_values(graph: Graph) -> set[Value]:
    """Values that can hold an infinity of a constant, or what stands for it: scores behind a mask."""
    found: set[Value] = set()
    for op in graph.ops():
        inputs = graph.op_inputs(op)
        if is_grid_preserving(op):
            inputs = inputs[:1]
        elif not op.is_type(*_PASSING):
            continue
        if any(value in found or _holds_infinity(value) for value in inputs if value is not None):
            found.update(value for value in graph.op_outputs(op) if value is not None and value.is_float)
    return found


def _holds_infinity(value: Value) -> bool:
    if value.const is None or not is_plain_float(value):
        return False
    array = value.const.numpy()
    return bool(array.size and max(np.max(array), -np.min(array)) >= _AS_INFINITE)
