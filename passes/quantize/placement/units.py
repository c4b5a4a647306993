"""Which of the units that the target runs as one operator run in integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import networkx as nx

from qc.ir.facts.dataflow import data_values, huge_values, infinite_values, is_plain_float
from qc.ir.facts.op_traits import bias_port, is_parameter, reads_shape_only, traits, weight_ports
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Op, Value
from qc.ir.model import Model

from ...framework.target import Target
from .constant_factors import scaled_alone
from .counts import counts, tallies
from .unit import Reason, Unit, units_of


class Input(NamedTuple):
    """One reading of data by a unit."""

    value: Value
    op: Op
    port: int


class UnitMap:
    """The units of the main graph and of all bodies, and which of them run in integers.

    A tensor is asked about by its original or what captures it; sets of values hold originals.

    Attributes:
        left_float: ops that run in float whatever the target says, with the reason.
        scopes: the main graph and its bodies, as data flows through them.
        units: all of them, in topological order of their last ops.
        integer: those that run in integers, in the same order.
    """

    def __init__(
        self,
        model: Model,
        target: Target,
        left_float: Mapping[Op, Reason] = MappingProxyType({}),
        saturates: bool = True,
    ) -> None:
        """Looks at a model.

        Args:
            left_float: see the attribute.
            saturates: whether the format of activations saturates, as all but 16-bit floats do.
        """
        self.left_float = left_float
        self.scopes = scopes_of(model.graph)
        self._of_op: dict[Op, Unit] = {}
        self._inputs: dict[Unit, tuple[Input, ...]] = {}
        self._outputs: dict[Unit, tuple[Value, ...]] = {}
        self._fused: dict[Unit, Value | None] = {}
        self._all_integer: dict[Value, bool] = {}
        self._data = data_values(model.graph)
        self._counts, self._tallies = counts(model.graph), tallies(model.graph)
        self._infinite = infinite_values(model.graph) if saturates else huge_values(model.graph)
        for unit in units_of(model, self.scopes, target, left_float):
            self._of_op.update(dict.fromkeys(unit.ops, unit))
        # In topological order: a unit counts where its last op stands.
        self.units = [self._of_op[op] for op in self.scopes.ops if self._of_op[op].root is op]
        self.integer = {
            unit: None
            for unit in self.units
            if unit.rule.runs in ("integer", "between") and self._is_eligible(unit)
        }
        self._scaling = set(self._find_scaling())
        for unit in self._scaling:
            del self.integer[unit]
        self._settle_between()
        self._behind_products = {unit for island in self._islands_behind_products() for unit in island}
        for unit in self._behind_products:
            del self.integer[unit]

    def unit_of(self, op: Op) -> Unit:
        """The unit that ``op`` belongs to."""
        return self._of_op[op]

    def runs_integer(self, op: Op | None) -> bool:
        """Whether ``op`` exists and its unit runs in integers."""
        return op is not None and self._of_op[op] in self.integer

    def is_carry(self, op: Op | None) -> bool:
        """Whether ``op`` only moves the data of its first input."""
        return op is not None and op not in self.scopes.branch_edges and self._of_op[op].rule.runs == "carry"

    def is_behind_products(self, unit: Unit) -> bool:
        """Whether a ``between`` unit is in float since all that makes its data gives floats as well."""
        return unit in self._behind_products

    def runs_with_maker(self, unit: Unit) -> bool:
        """Whether a ``between`` unit of data and constants is run as one with what makes the data."""
        return unit in self._scaling

    def is_data(self, value: Value) -> bool:
        """Whether ``value`` depends on the numbers of an input, and not on shapes and constants alone.

        Counts are no data either: they stay the whole numbers that they are.
        """
        return value.original in self._data and not (self.is_count(value) or self.is_tally(value))

    def is_count(self, value: Value) -> bool:
        """Whether ``value`` is computed from integers, to become integers again."""
        return value.original in self._counts

    def is_tally(self, value: Value) -> bool:
        """Whether ``value`` counts truth values, to be compared with numbers."""
        return value.original in self._tallies

    def counts_exactly(self, unit: Unit) -> bool:
        """Whether the result of a unit is such a count, so that its weights stay what they are."""
        return any(map(self.is_tally, self.outputs(unit)))

    def is_infinite(self, value: Value) -> bool:
        """Whether ``value`` can hold an infinity of a constant, or what stands for it."""
        return value.original in self._infinite

    def inputs(self, unit: Unit) -> tuple[Input, ...]:
        """The float32 data that the unit reads from outside.

        What can hold infinity is not among them, nor are parameters, unless the rule gives them grids.
        """
        if unit not in self._inputs:
            self._inputs[unit] = tuple(self._find_inputs(unit))
        return self._inputs[unit]

    def is_weight(self, unit: Unit, op: Op, port: int) -> bool:
        """Whether what an op reads there is a weight, or the scale of a normalization that has a grid."""
        of_norm = port in unit.rule.parameters and traits(op).trained.get("weight") == port
        return port in weight_ports(op) or of_norm

    def is_bias(self, unit: Unit, value: Value, op: Op, port: int) -> bool:
        """Whether what an op reads there is a bias: by its definition, or as its region captured it."""
        in_region = unit.region is not None and unit.region.captures.get("bias") is value
        of_norm = port in unit.rule.parameters and traits(op).trained.get("bias") == port
        return port == bias_port(op) or of_norm or (in_region and op.is_type("Add"))

    def outputs(self, unit: Unit) -> tuple[Value, ...]:
        """The float32 values that the unit makes and shows to others, without those that can be infinite."""
        if unit not in self._outputs:
            self._outputs[unit] = tuple(self._find_outputs(unit))
        return self._outputs[unit]

    def fused_input(self, unit: Unit) -> Value | None:
        """The input that the unit takes without a grid, since what makes it runs as one with the unit."""
        if not unit.rule.fused_with:
            return None
        if unit not in self._fused:
            self._fused[unit] = next(self._find_fused_inputs(unit), None)
        return self._fused[unit]

    def all_readers_integer(self, value: Value) -> bool:
        """Whether ``value`` is read, and every reader runs in integers.

        Looks through data movers, and into and out of the bodies of If, Loop and Scan.
        """
        if value.original not in self._all_integer:
            self._all_integer[value.original] = self._is_read_by_integer_only(value.original)
        return self._all_integer[value.original]

    # -- internals ----------------------------------------------------------------------------------

    def _find_inputs(self, unit: Unit) -> Iterator[Input]:
        for op in unit.ops:
            for port, value in enumerate(op.inputs):
                is_data = port in unit.rule.parameters or not is_parameter(op, port)
                if value is None or not self._has_grid(value) or not is_data:
                    continue
                outside = value.producer not in unit.ops
                is_read = outside and value is not self.fused_input(unit)
                if is_read and not self._is_number_within(unit, Input(value, op, port)):
                    yield Input(value, op, port)

    def _is_number_within(self, unit: Unit, given: Input) -> bool:
        """Whether an input is a number that a region computes with, such as the 0.5 of a GELU."""
        const, region = given.value.original.const, unit.region
        if region is None or const is None or const.size != 1:
            return False
        if self.is_weight(unit, given.op, given.port) or self.is_bias(unit, *given):
            return False
        read = (value for value in given.op.inputs if value is not None)
        return any(region.is_inner(value) for value in read)

    def _find_fused_inputs(self, unit: Unit) -> Iterator[Value]:
        for op in unit.ops:
            for value in op.inputs:
                producer = value.producer if value is not None else None
                if value is None or producer is None or producer in unit.ops:
                    continue
                before = self._of_op[producer]
                fits = any(made.is_type(*unit.rule.fused_with) for made in before.ops)
                alone = len(value.uses) == 1 and not self.scopes.leaves(value)
                if fits and alone and before.rule.runs == "integer":
                    yield value

    def _find_outputs(self, unit: Unit) -> Iterator[Value]:
        region = unit.region
        for value in (value for op in unit.ops for value in op.outputs):
            if value is None or not self._has_grid(value):
                continue
            if region is None or not region.is_inner(value):
                yield value

    def _is_read_by_integer_only(self, value: Value) -> bool:
        pending, known, seen = [value], {value}, False
        while pending:
            current = pending.pop()
            if self.scopes.leaves(current):
                return False
            reached = list(self.scopes.onward(current))
            for op, port in self.scopes.uses(current):
                if reads_shape_only(op):
                    continue
                if self.is_carry(op) and port == 0:
                    reached.extend(out for out in op.outputs if out is not None)
                elif (
                    not isinstance(port, int)
                    or not self.runs_integer(op)
                    or is_parameter(op, port)
                    or current is self.fused_input(self.unit_of(op))
                ):
                    return False
                seen = True
            pending.extend(out for out in reached if out not in known)
            known.update(reached)
        return seen

    def _has_grid(self, value: Value) -> bool:
        return is_plain_float(value) and not self.is_infinite(value)

    def _is_eligible(self, unit: Unit) -> bool:
        """Whether the unit computes float32 data from float32 data, or compares such data."""
        outputs: Iterable[Value] = self.outputs(unit)
        if unit.rule.runs == "integer" and traits(unit.root).compares:
            outputs = (value for value in unit.root.outputs if value is not None)
        given = [value for value, _, _ in self.inputs(unit)]
        if unit.rule.fused_with and self.fused_input(unit) is None:
            return False
        # A Where of two constants, as masks are, chooses by data.
        reads_data = unit.root.is_type("Where") or any(value.original.const is None for value in given)
        return any(map(self.is_data, outputs)) and bool(given) and reads_data

    def _find_scaling(self) -> Iterator[Unit]:
        """The units that do no more than scale or shift what an integer unit computes for them alone."""
        for unit in self.integer:
            value = scaled_alone(self.inputs(unit), self.scopes) if unit.rule.fuses_constants else None
            maker = value.producer if value is not None else None
            rule = self._of_op[maker].rule if self.runs_integer(maker) and maker is not None else None
            if rule is not None and (rule.runs == "integer" or rule.fuses_constants):
                yield unit

    def _hands_on(self, unit: Unit) -> bool:
        """Whether integers in front of a unit are as good as integers made by it."""
        return self.is_carry(unit.root) or unit in self._scaling

    def _settle_between(self) -> None:
        """Drops ``between`` units until each has integer producers and an integer reader.

        Decisions ripple in both directions, so sweeps forward and backward alternate until nothing changes.
        What comes around a loop, or is read in the next iteration, does not count as integer.
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
            given = [value.original for value, _, _ in self.inputs(unit)]
            given = [value for value in given if value.const is None]
            if unit.rule.runs == "between" and not all(value in from_integer for value in given):
                self.integer.pop(unit, None)
            carried = self._hands_on(unit) and bool(given) and given[0] in from_integer
            if carried or unit in self.integer:
                from_integer.update(self.outputs(unit))
            for edge in self.scopes.branch_edges.get(unit.root, ()):
                sources = [value for value in edge.sources if value.const is None]
                if edge.outside is not None and sources and from_integer.issuperset(sources):
                    from_integer.add(edge.outside)

    def _sweep_backward(self) -> None:
        read_by_integer: set[Value] = set()
        for unit in reversed(self.units):
            outputs = self.outputs(unit)
            is_read = any(value in read_by_integer for value in outputs)
            if unit.rule.runs == "between" and not is_read:
                self.integer.pop(unit, None)
            if unit in self.integer or (self._hands_on(unit) and is_read):
                read_by_integer.update(value.original for value, _, _ in self.inputs(unit))
            for edge in self.scopes.branch_edges.get(unit.root, ()):
                if edge.outside in read_by_integer:
                    read_by_integer.update(edge.sources)

    def _islands_behind_products(self) -> Iterator[set[Unit]]:
        """Connected ``between`` units where all that makes their data gives integers only when needed."""
        makers = {unit: set(self._makers(unit)) for unit in self.integer if unit.rule.runs == "between"}
        graph = nx.Graph()
        graph.add_nodes_from(makers)
        graph.add_edges_from((unit, maker) for unit in makers for maker in makers[unit] & makers.keys())
        for island in nx.connected_components(graph):
            others = set().union(*(makers[unit] for unit in island)) - island
            if all(maker is not None and maker.rule.output == "when-needed" for maker in others):
                yield island

    def _makers(self, unit: Unit) -> Iterator[Unit | None]:
        """What makes a unit's data, before it was moved; None for what comes into a body or out of one."""
        for value, _, _ in self.inputs(unit):
            if value.original.const is None:
                yield self._maker(value.original)

    def _maker(self, value: Value) -> Unit | None:
        producer = value.producer
        if producer is None or producer in self.scopes.branch_edges:
            return None
        unit = self._of_op[producer]
        moved = self.inputs(unit) if self.is_carry(producer) else ()
        return self._maker(moved[0].value.original) if moved else unit
