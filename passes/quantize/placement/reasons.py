"""Why tensors stay float, which line of configuration decided so, and what a user can do about it."""

from __future__ import annotations

from itertools import chain

from qc.ir.facts.dataflow import holds_infinity, is_plain_float
from qc.ir.facts.op_traits import weight_ports
from qc.ir.graph import Op, Value
from qc.ir.quant_table import QuantTable

from .unit import Reason, Unit
from .units import UnitMap


class Reasons:
    """Tells of every float tensor without a quantizer why it has none, when all others are placed."""

    def __init__(self, units: UnitMap, quant: QuantTable) -> None:
        self._units = units
        self._quant = quant

    def is_quantized(self, value: Value) -> bool:
        """Whether the tensor has a quantizer at any site in any graph."""
        return any(self._quant.touches(alias) for alias in self._units.scopes.aliases(value))

    def why_float(self, value: Value) -> Reason:
        """The reason of a float tensor without a quantizer."""
        if not is_plain_float(value):
            return Reason(
                "a tensor of 16-bit floats; qc quantizes float32", suggestion="start from the float32 model"
            )
        if self._units.is_infinite(value) or self._is_infinite_mask(value):
            return Reason(
                "it can hold infinity, NaN or a number as large, of a constant: no grid reaches there",
                suggestion="a mask of a moderate number, such as -100, would let it have a grid",
            )
        producer = value.producer
        return self._why_unread(value) if producer is None else self._why_made_in_float(value, producer)

    def _is_infinite_mask(self, value: Value) -> bool:
        """Whether a constant holds an infinity that its readers hand on."""
        if value.const is None:
            return False
        readers = (use.op for use in self._units.scopes.uses(value) if isinstance(use.op, Op))
        results = chain.from_iterable(op.outputs for op in readers)
        hands_on = any(made is not None and self._units.is_infinite(made) for made in results)
        return hands_on and holds_infinity(value)

    def _why_made_in_float(self, value: Value, producer: Op) -> Reason:
        unit = self._units.unit_of(producer)
        asked_by = unit.rule.asked_by
        if unit.region is not None and unit.region.is_inner(value):
            return Reason(f"inside {unit.label}, which runs as one operator", asked_by)
        if self._units.is_count(value):
            return Reason(f"{unit.label} computes it from integers, and integers are made of it")
        if self._units.is_tally(value):
            return Reason(f"{unit.label} counts truth values, and an Equal compares the count")
        if not self._units.is_data(value):
            return Reason(f"{unit.label} computes it from shapes or constants alone")
        if unit in self._units.integer:
            return Reason(f"{unit.label} can give a float result, and {self._float_reader(value)}", asked_by)
        if unit.rule.fused_with and unit.rule.runs != "float":
            why = f"{unit.label} runs in integers only behind {' or '.join(unit.rule.fused_with)}"
            return Reason(f"{why}, and is not behind such", asked_by)
        if self._units.is_behind_products(unit):
            why = f"{unit.label} is as quick in float behind products, which give floats as well"
            return Reason(why, asked_by)
        if self._units.runs_with_maker(unit):
            return Reason(f"{unit.label} runs as one with what makes its data", asked_by)
        if unit.rule.runs == "between":
            why = f"{unit.label} runs in integers only between integer ops, and is not between such"
            return Reason(why, asked_by)
        if unit.rule.runs == "weights" and self._has_weights(producer):
            return Reason(f"{unit.label} has a grid for its weights alone: {unit.rule.why}", asked_by)
        if unit.rule.runs == "carry":
            verb = "moves" if self._units.is_carry(producer) else "gives back"
            return Reason(
                f"{unit.label} {verb} float data, and nothing that reads it runs in integers", asked_by
            )
        why = unit.rule.why or "the target has no integer kernel for it"
        return Reason(f"{unit.label} runs in float: {why}", asked_by, _remedy(unit))

    def _has_weights(self, op: Op) -> bool:
        """Whether an op multiplies by a weight with a grid; a product of data by data has none."""
        read = op.inputs
        held = (read[port] for port in weight_ports(op))
        return any(value is not None and self.is_quantized(value) for value in held)

    def _float_reader(self, value: Value) -> str:
        scopes = self._units.scopes
        fused = (use.op for use in scopes.uses(value) if self._is_fused(value, use.op))
        reader = next(fused, None)
        if reader is not None:
            return f"{self._units.unit_of(reader).label} runs as one with it"
        if scopes.leaves(value):
            return "it is a graph output"
        return "it becomes a graph output" if scopes.is_exposed(value) else "a reader runs in float"

    def _is_fused(self, value: Value, reader: Op) -> bool:
        return self._units.fused_input(self._units.unit_of(reader)) is value

    def _why_unread(self, value: Value) -> Reason:
        reader = next((use.op for use in self._units.scopes.uses(value)), None)
        if reader is None:
            return self._why_passed_on(value)
        unit = self._units.unit_of(reader)
        asked_by = unit.rule.asked_by
        if unit in self._units.integer:
            return Reason(f"a parameter of {unit.label}, which stays as it is", asked_by)
        if self._units.counts_exactly(unit):
            return Reason(f"read by {unit.label}, which counts truth values, and an Equal compares the count")
        if unit.rule.runs == "weights" and self._has_weights(reader):
            return Reason(f"read by {unit.label}, which has a grid for its weights alone", asked_by)
        if unit.rule.runs == "carry":
            return Reason(f"{unit.label} moves it, and nothing that reads it runs in integers", asked_by)
        return Reason(f"read by {unit.label}, which runs in float", asked_by)

    def _why_passed_on(self, value: Value) -> Reason:
        """The reason of a value that goes nowhere but into or out of a body."""
        results = self._units.scopes.onward(value)
        if not results:
            return Reason("nothing reads it")
        arrived = next((result for result in results if self.is_quantized(result)), None)
        if arrived is not None:
            return Reason(f"it is quantized where it arrives, as tensor '{arrived.name}'")
        return Reason(f"nothing reads it in integers where it arrives, as tensor '{results[0].name}'")


def _remedy(unit: Unit) -> str:
    """What would make an op run in integers that the target or an option leaves in float."""
    if unit.rule.why is not None or unit.root.domain:
        return ""
    return f'a target with {unit.root.op_type} = {{ runs = "integer" }} in [ops] would quantize it'
