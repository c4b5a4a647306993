"""What would be slower in integers than in float, by the costs of a target."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import networkx as nx

from qc.ir.facts.op_traits import is_parameter, reads_shape_only
from qc.ir.graph import Op, Value
from qc.ir.model import Model

from ...framework.context import PassContext
from ...framework.target_costs import Amounts, Costs, Nanoseconds, nanoseconds
from .labels import NEVER, Labels
from .shapes import estimated_shapes
from .units import Reason, Unit, UnitMap
from .work import ShapeOf, work_of

_FLOAT = "float"  # what makes the inputs of a model, and reads its results
_PER_NANOSECOND = 1000  # costs are whole numbers of picoseconds
_IMAGE = 4  # the rank of tensors for which convolutions have a layout of their own


@dataclass(frozen=True, eq=False)
class _Quantized:
    """Stands for a tensor in integers that a float op makes."""

    value: Value


def left_float_by_cost(
    model: Model, context: PassContext, left_float: Mapping[Op, Reason], saturates: bool
) -> Mapping[Op, Reason]:
    """``left_float``, and what the target of the context would be slower with in integers, by its costs.

    Args:
        left_float, saturates: as for :class:`UnitMap`.
    """
    target = context.required_target()
    if target.costs is None:
        return left_float
    shape_of = estimated_shapes(model, context, target.costs.free_length)
    while True:
        units = UnitMap(model, target, left_float, saturates)
        slower = Weighing(units, target.costs, shape_of, target.name).slower_in_integers()
        if not slower:
            return left_float
        left_float = {**left_float, **slower}


class Weighing:
    """Weighs integers against floats, by the time of kernels and of the ops that lead from one to the other.

    What is connected is weighed together: an op that is slower in integers stays among others that are
    quicker, where it would cost more to dequantize in front of it and to quantize behind.
    """

    def __init__(self, units: UnitMap, costs: Costs, shape_of: ShapeOf, target: str) -> None:
        self._units = units
        self._costs = costs
        self._shape_of = shape_of
        self._asked_by = f"costs of target {target}"
        self._labels = Labels()
        self._labels.add_node(_FLOAT, integer=NEVER)
        for unit in units.units:
            self._add_unit(unit)
        for value in (value for graph in units.scopes.graphs for value in graph.values()):
            if value.captured is None and value.const is None and value.is_float:
                self._add_tensor(value)

    def slower_in_integers(self) -> dict[Op, Reason]:
        """The ops that are better left in float, though the target has integer kernels for them.

        None if the model is clearly quicker in integers than in floats, so that an estimate that is wrong
        does no harm, or if all of them together cost no more than what nobody notices.
        """
        now = self._labels.cost(self._labels.cheapest(integer=self._units.integer))
        if now <= self._costs.quick * self._labels.cost(self._labels.all_float()):
            return {}
        best = self._labels.cheapest()
        saved = now - self._labels.cost(best)
        if saved <= self._costs.unnoticed * 1000 * _PER_NANOSECOND:
            return {}
        return {op: reason for island, reason in self._islands(best) for unit in island for op in unit.ops}

    def nanoseconds(self, integer: Collection[Unit]) -> float:
        """What a run is estimated to take if these units run in integers and all others in float.

        What the target lists no costs for counts nothing. Ops that only move data run as is cheapest.
        """
        floats = [unit for unit in self._units.integer if unit not in integer]
        cost = self._labels.cost(self._labels.cheapest(integer=integer, float=floats))
        return cost % NEVER / _PER_NANOSECOND  # whoever chose these knows that they can be so

    def _reason(self, integers: int, floats: int) -> Reason:
        text = (
            f"integers would take an estimated {_microseconds(integers)} here, with the ops that quantize "
            f"and dequantize, and floats take {_microseconds(floats)}"
        )
        return Reason(text, self._asked_by, stores_weights=True)

    def _islands(self, is_float: dict[Hashable, bool]) -> Iterator[tuple[list[Unit], Reason]]:
        """The units that stay float, as far as they are connected, with the reason."""
        among = (node for node, floats in is_float.items() if floats and self._is_open(node))
        for nodes in nx.connected_components(self._labels.neighbours().subgraph(among)):
            island = [unit for unit in self._units.integer if unit in nodes]
            floats = self._labels.cost(is_float, nodes)
            integers = self._labels.cost(is_float | dict.fromkeys(nodes, False), nodes)
            yield island, self._reason(integers, floats)

    def _is_open(self, node: Hashable) -> bool:
        """Whether a node may have either label."""
        if isinstance(node, Unit):
            return node in self._units.integer or self._units.is_carry(node.root)
        return isinstance(node, _Quantized)

    # -- costs --------------------------------------------------------------------------------------

    def _add_unit(self, unit: Unit) -> None:
        if unit in self._units.integer or self._units.is_carry(unit.root):
            self._labels.add_node(unit, *self._kernels(unit))
        else:
            self._labels.add_node(unit, integer=NEVER)
        if unit.rule.runs == "between":
            for value, _, _ in self._units.inputs(unit):
                if value.original.const is None:
                    self._needs_integer(unit, value)

    def _needs_integer(self, unit: Unit, value: Value) -> None:
        """A unit that runs in integers only between others needs what made its data, before it was moved."""
        source = self._source(value)
        while isinstance(source, Unit) and self._units.is_carry(source.root) and self._units.inputs(source):
            source = self._source(self._units.inputs(source)[0].value)
        if source is not None:
            self._labels.add_cost(unit, source, NEVER)

    def _kernels(self, unit: Unit) -> tuple[int, int]:
        """The cost of a unit in integers and in float; it stays in integers where that is not known."""
        integers, floats = 0, 0
        for op in unit.ops:
            work = work_of(op, self._shape_of, self._costs.lanes)
            kernel = self._costs.kernels.get(work.kind) if work is not None else None
            if work is not None and kernel is not None:
                integers += _picoseconds(kernel.integers, work.amounts)
                floats += _picoseconds(kernel.floats, work.amounts)
        is_known = integers or unit.rule.runs != "integer"
        return (integers, round(floats * self._costs.margin)) if is_known else (0, NEVER)

    def _add_tensor(self, value: Value) -> None:
        """Adds what it costs to quantize a tensor once, and to dequantize it for each float reader."""
        source = self._source(value)
        if source is None:
            return
        readers = [reader for reader in self._readers(value) if reader is not source]
        self._follow_runtime(source, readers)
        quantized = _Quantized(value) if len(set(readers)) > 1 else None
        for reader in dict.fromkeys(readers):
            if quantized is not None:
                self._labels.add_cost(reader, quantized, NEVER)
        for reader in [quantized] if quantized is not None else readers:
            self._labels.add_cost(reader, source, self._rounding(value, self._costs.quantize, readers))
        if isinstance(source, Unit) and source.rule.output == "always":
            for reader in readers:
                self._labels.add_cost(source, reader, self._rounding(value, self._costs.dequantize, [source]))

    def _follow_runtime(self, source: Hashable, readers: list[Hashable]) -> None:
        """What only moves data moves integers if it can: the runtime puts quantize ops in front of it.

        ONNX Runtime does so where a quantize op alone reads the result, and lets dequantize ops follow.
        """
        for reader in readers:
            if isinstance(reader, Unit) and self._units.is_carry(reader.root):
                self._labels.add_cost(source, reader, NEVER)
        if len(readers) == 1 and isinstance(source, Unit) and self._units.is_carry(source.root):
            self._labels.add_cost(readers[0], source, NEVER)

    def _source(self, value: Value) -> Hashable | None:
        """What makes a tensor; None for what comes into a body, or out of one."""
        producer = value.original.graph.producer(value.original)
        if producer is None:
            return _FLOAT if value.original.graph.parent is None else None
        return self._units.unit_of(producer) if producer not in self._units.scopes.branch_edges else None

    def _readers(self, value: Value) -> Iterator[Hashable]:
        """What reads the numbers of a tensor, as often as it does."""
        scopes = self._units.scopes
        for op, port in scopes.uses(value):
            ignored = not isinstance(port, int) or is_parameter(op, port) or reads_shape_only(op)
            if not ignored and op not in scopes.branch_edges:
                yield self._units.unit_of(op)
        if scopes.leaves(value):
            yield _FLOAT

    def _rounding(self, value: Value, costs: Nanoseconds, integers: list[Hashable]) -> int:
        """The cost of a quantize or dequantize op beside units that run in integers."""
        shape = self._shape_of(value)
        if shape is None:
            return 0
        moves = len(shape) == _IMAGE and any(_has_layout(unit) for unit in integers)
        amounts = {"op": 1, "made": prod(shape), "layout": prod(shape) if moves else 0}
        return _picoseconds(costs, amounts)


def _has_layout(unit: Hashable) -> bool:
    return isinstance(unit, Unit) and not any(op.is_type("MatMul", "Gemm") for op in unit.ops)


def _picoseconds(costs: Nanoseconds, amounts: Amounts) -> int:
    return round(nanoseconds(costs, amounts) * _PER_NANOSECOND)


def _microseconds(picoseconds: int) -> str:
    return f"{picoseconds / 1000 / _PER_NANOSECOND:.3g} µs"
