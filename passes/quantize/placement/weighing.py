"""What would be slower in integers than in float, by the costs of a target."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import networkx as nx

from qc.ir.facts.op_traits import is_parameter, reads_shape_only
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from ...framework.context import PassContext
from ...framework.target_costs import Amounts, Costs, Nanoseconds, nanoseconds
from .labels import NEVER, Labels
from .shapes import estimated_shapes
from .unit import Reason, Unit
from .units import UnitMap
from .work import BLOCKED, ELEMENTWISE, ShapeOf, work_of

_FLOAT = "float"  # what makes the inputs of a model, and reads its results
_PER_NANOSECOND = 1000  # costs are whole numbers of picoseconds
_ROUNDS = 16  # of a loop: fewer than most have, and enough for what each of them loses
_IMAGE = 4  # the rank of tensors for which convolutions have a layout of their own


@dataclass(frozen=True, eq=False)
class _Quantized:
    """Stands for a tensor in integers that a float op makes."""

    value: Value


def quickest_units(
    model: Model, context: PassContext, left_float: Mapping[Op, Reason], saturates: bool
) -> UnitMap:
    """The units, without those in integers that the target of the context would be slower with, by its costs.

    Args:
        left_float, saturates: as for :class:`UnitMap`.
    """
    target = context.required_target()
    if target.costs is None:
        return UnitMap(model, target, left_float, saturates)
    shape_of = estimated_shapes(model, context, target.costs.free_length)
    units = UnitMap(model, target, left_float, saturates)
    while units.integer:
        slower = Weighing(units, target.costs, shape_of, target.name).slower_in_integers()
        if not slower:
            break
        left_float = {**left_float, **slower}
        units = UnitMap(model, target, left_float, saturates)
    return units


class Weighing:
    """Weighs integers against floats, by the time of kernels and of the ops that lead from one to the other.

    What is connected is weighed together: an op that is slower in integers stays among others that are
    quicker, where it would cost more to dequantize in front of it and to quantize behind. An elementwise op
    that runs in float in any case has a label, too: the layout of integers, or that of float convolutions.
    """

    def __init__(self, units: UnitMap, costs: Costs, shape_of: ShapeOf, target: str) -> None:
        self._units = units
        self._costs = costs
        self._shape_of = shape_of
        self._asked_by = f"costs of target {target}"
        self._labels = Labels()
        self._labels.add_node(_FLOAT, integer=NEVER)
        self._followers = {unit: None for unit in units.units if self._follows(unit)}
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
        floats = self._labels.cost(self._labels.all_float())
        if now <= self._costs.quick * floats:
            return {}
        best = self._labels.cheapest()
        saved = now - self._labels.cost(best)
        unnoticed = self._costs.unnoticed if now <= floats else self._costs.tolerated
        if saved <= unnoticed * 1000 * _PER_NANOSECOND:
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
        among = [node for node, floats in is_float.items() if floats and self._is_open(node)]
        position = {node: index for index, node in enumerate(among)}
        order = {unit: index for index, unit in enumerate(self._units.integer)}
        islands = nx.connected_components(self._labels.neighbours().subgraph(among))
        for nodes in sorted(islands, key=lambda nodes: min(map(position.__getitem__, nodes))):
            island = sorted(order.keys() & nodes, key=order.__getitem__)
            floats = self._labels.cost(is_float, nodes)
            integers = self._labels.cost(ChainMap(dict.fromkeys(nodes, False), is_float), nodes)
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
        elif unit in self._followers:
            self._labels.add_node(unit, *self._by_layout(unit))
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
        integers, floats = self._measured(unit)
        is_known = integers or unit.rule.runs != "integer"
        return (integers, floats) if is_known else (0, NEVER)

    def _measured(self, unit: Unit) -> tuple[int, int]:
        """What kernels were measured to take in integers and in float; what is not known counts nothing."""
        integers, floats = 0, 0
        for op in unit.ops:
            work = work_of(op, self._shape_of, self._costs.lanes)
            kernel = self._costs.kernels.get(work.kind) if work is not None else None
            if work is not None and kernel is not None:
                integers += _runs(op.graph) * _picoseconds(kernel.integers, work.amounts)
                floats += _runs(op.graph) * _picoseconds(kernel.floats, work.amounts)
        return integers, floats

    def _follows(self, unit: Unit) -> bool:
        """Whether it is an elementwise op on pictures that runs in float, in any layout."""
        if unit in self._units.integer or unit.root.domain or not unit.root.is_type(*ELEMENTWISE):
            return False
        shape = self._shape_of(unit.root.outputs[0])
        return not self._units.is_carry(unit.root) and shape is not None and len(shape) == _IMAGE

    def _by_layout(self, unit: Unit) -> tuple[int, int]:
        """What an elementwise float op costs in the layout of integers, and in that of float convolutions.

        The op itself is known of a HardSwish alone. What has no layout of convolutions gets a copy of its
        data in the plain one, and the convolution behind it a copy back.
        """
        op = unit.root
        work = work_of(op, self._shape_of, self._costs.lanes)
        is_known = work is not None and work.kind == "HardSwish"
        integers, floats = self._measured(unit) if is_known else (0, 0)
        made = [value for value in op.outputs if value is not None]
        data = self._data(unit)
        if not op.is_type(*BLOCKED) or (op.is_type("Add", "Mul") and len(data) == 1):
            copies = [value for value in data if _is_convolution(self._source(value))]
            copies += [value for value in made if any(map(_is_convolution, self._readers(value)))]
            floats += sum(map(self._moving, copies))
        return integers, floats

    def _data(self, unit: Hashable) -> list[Value]:
        """What an op reads that is no constant."""
        read = unit.root.inputs if isinstance(unit, Unit) else ()
        return [value for value in read if value is not None and value.original.const is None]

    def _add_tensor(self, value: Value) -> None:
        """Adds what it costs to quantize a tensor once, to dequantize it for readers, and to move it."""
        source = self._source(value)
        if source is None:
            return
        readers = [reader for reader in self._readers(value) if reader is not source]
        self._follow_runtime(source, readers)
        self._add_quantize(value, source, [reader for reader in readers if reader not in self._followers])
        for reader in readers:
            self._add_dequantize(value, source, reader)
            self._add_layout(value, source, reader)

    def _add_quantize(self, value: Value, source: Hashable, readers: list[Hashable]) -> None:
        quantized = _Quantized(value) if len(set(readers)) > 1 else None
        for reader in dict.fromkeys(readers):
            if quantized is not None:
                self._labels.add_cost(reader, quantized, NEVER)
        moving = self._moving(value) if any(map(_has_layout, readers)) else 0
        for reader in [quantized] if quantized is not None else readers:
            rounding = self._rounding(value, self._costs.quantize)
            self._labels.add_cost(reader, self._numbers_of(source), rounding)
            self._labels.add_cost(reader, source, moving)

    def _add_dequantize(self, value: Value, source: Hashable, reader: Hashable) -> None:
        if source in self._followers or not isinstance(source, Unit) or source.rule.output != "always":
            return
        rounding = self._rounding(value, self._costs.dequantize)
        self._labels.add_cost(source, self._numbers_of(reader), rounding)
        if _has_layout(source) and reader not in self._followers:
            self._labels.add_cost(source, reader, self._moving(value))

    def _add_layout(self, value: Value, source: Hashable, reader: Hashable) -> None:
        """Adds what layouts cost where elementwise float ops, or pools of integers, find another one."""
        moving = self._moving(value) if _has_layout(source) else 0
        if source in self._followers or reader in self._followers:
            self._labels.add_cost(source, reader, moving)
        if reader in self._followers:  # the layout of integers is that of what integer ops have made
            is_alone = len(self._data(reader)) == 1
            self._labels.add_cost(reader, source, NEVER if is_alone else moving)
        if isinstance(reader, Unit) and reader.root.is_type("MaxPool"):
            self._labels.add_cost(reader, source, self._apart(reader))

    def _apart(self, pool: Unit) -> int:
        """How much longer integers take in a pool if the convolution before it gives floats."""
        work = work_of(pool.root, self._shape_of, self._costs.lanes)
        kernels = self._costs.kernels
        if work is None or work.kind != "MaxPool" or not {"LoneMaxPool", "MaxPool"} <= kernels.keys():
            return 0
        lone, among = (
            _picoseconds(kernels[kind].integers, work.amounts) for kind in ("LoneMaxPool", "MaxPool")
        )
        return max(lone - among, 0)

    def _numbers_of(self, node: Hashable) -> Hashable:
        """What tells whether a node has integers: one that follows others has floats, whatever its label."""
        return _FLOAT if node in self._followers else node

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
        """What makes a tensor; None for what comes out of a body. A loop hands floats to its rounds."""
        producer = value.original.producer
        if producer is None:
            return _FLOAT
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

    def _rounding(self, value: Value, costs: Nanoseconds) -> int:
        """The cost of a quantize or dequantize op."""
        shape = self._shape_of(value)
        once = _picoseconds(costs, {"op": 1, "made": prod(shape)}) if shape is not None else 0
        return _runs(value.original.graph) * once

    def _moving(self, value: Value) -> int:
        """The cost of another layout for a tensor."""
        shape = self._shape_of(value)
        if shape is None or len(shape) != _IMAGE:
            return 0
        return _runs(value.original.graph) * _picoseconds(self._costs.dequantize, {"layout": prod(shape)})


def _runs(graph: Graph) -> int:
    """How often the ops of a graph run, as far as loops around it tell."""
    around = graph.parent
    if around is None:
        return 1
    return (_ROUNDS if around.is_type("Loop", "Scan") else 1) * _runs(around.graph)


def _has_layout(node: Hashable) -> bool:
    return not (isinstance(node, Unit) and any(op.is_type("MatMul", "Gemm") for op in node.ops))


def _is_convolution(node: Hashable) -> bool:
    return isinstance(node, Unit) and any(op.is_type("Conv") for op in node.ops)


def _picoseconds(costs: Nanoseconds, amounts: Amounts) -> int:
    return round(nanoseconds(costs, amounts) * _PER_NANOSECOND)


def _microseconds(picoseconds: int) -> str:
    return f"{picoseconds / 1000 / _PER_NANOSECOND:.3g} µs"
