"""The tensors that have 16 bits among others of 8, where 8 lose most of what they say."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import joins_grids, traits
from qc.ir.graph import Op, Value

from ...framework.target import Target
from .spectra import SINE_AND_COSINE, before_angles
from .units import UnitMap


def wide_tensors(units: UnitMap, target: Target, angles: bool) -> frozenset[Value]:
    """Where a target that runs 8 bits is to have the 16 that it also runs.

    Args:
        angles: whether what only a sine and a cosine see has them, if these run in integers: a step of 8 bits
            can be most of a turn.

    Returns:
        Angles, their sines and cosines; what ops read and make whose rule is ``wide``, but for results of
        products, which would take twice the time; and what moves any of these.
    """
    found: set[Value] = set()
    if angles and target.rule_for("Sin").runs == "integer":
        found.update(_angles(units))
    for unit in units.integer:
        if unit.rule.wide:
            found.update(units.outputs(unit))
            for value, _, _ in units.inputs(unit):
                found.update(_moved_from(units, value.original))
    for op in units.scopes.ops:
        moved = op.graph.op_inputs(op)[0] if units.is_carry(op) else None
        if moved is not None and moved.original in found:
            found.update(_results(op))
    return frozenset(found)


def _angles(units: UnitMap) -> set[Value]:
    """The angles, their sines and cosines, and what joins these alone.

    A position or a time that is an input of the model, and that nothing else reads, is an angle too.
    """
    before = before_angles(units.scopes.graphs[0])
    found = {value for op in before for value in _results(op)}
    for value in units.scopes.graphs[0].inputs:
        readers = [op for op, _ in units.scopes.uses(value)]
        if is_plain_float(value) and readers and before.issuperset(readers):
            found.add(value)
    for op in units.scopes.ops:
        read = [value.original for value in op.graph.op_inputs(op) if value is not None]
        if (op.is_type(*SINE_AND_COSINE) or joins_grids(op)) and found.issuperset(read):
            found.update(_results(op))
    return found


def _moved_from(units: UnitMap, value: Value) -> list[Value]:
    """A tensor and what it was moved from; nothing if that is a constant, or the result of a product."""
    chain = [value]
    while True:
        producer = chain[-1].graph.producer(chain[-1])
        if chain[-1].const is not None or (producer and traits(producer).product):
            return []
        source = producer.graph.op_inputs(producer)[0] if producer and units.is_carry(producer) else None
        if source is None:
            return chain
        chain.append(source.original)


def _results(op: Op) -> Iterator[Value]:
    return (value for value in op.graph.op_outputs(op) if value is not None)
