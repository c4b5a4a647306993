"""The tensors that have 16 bits among others of 8, where 8 lose most of what they say."""

from __future__ import annotations

from collections.abc import Iterator

from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import joins_grids, traits
from qc.ir.graph import Op, Value

from ...framework.target import Target
from .spectra import ENDS, limits_product
from .units import UnitMap


def wide_tensors(units: UnitMap, target: Target, spectra: bool) -> frozenset[Value]:
    """Where a target that runs 8 bits is to have the 16 that it also runs.

    Args:
        spectra: whether what only logarithms, roots, or a sine and a cosine see has them, with their results,
            where these run in integers.

    Returns:
        These; what ops read and make whose rule is ``wide``, but for results of products, which would take
        twice the time; and what moves any of them.
    """
    found: set[Value] = set()
    for ends, before, _ in ENDS if spectra else ():
        if all(target.rule_for(end).runs == "integer" for end in ends):
            found.update(_seen_by(units, ends, before(units.scopes.graphs[0])))
    for unit in units.integer:
        if unit.rule.wide:
            found.update(units.outputs(unit))
            for value, _, _ in units.inputs(unit):
                found.update(_moved_from(units, value.original))
    for op in units.scopes.ops:
        moved = op.inputs[0] if units.is_carry(op) else None
        if moved is not None and moved.original in found:
            found.update(_results(op))
    return frozenset(found)


def _seen_by(units: UnitMap, ends: frozenset[str], before: frozenset[Op]) -> set[Value]:
    """What is computed before these ends and by them, what joins that, and inputs that it begins with."""
    found = {
        value
        for value in units.scopes.graphs[0].inputs
        if is_plain_float(value) and any(op in before for op, _ in units.scopes.uses(value))
    }
    for op in units.scopes.ops:
        read = [value.original for value in op.inputs if value is not None and _is_data(value)]
        is_computed = op in before and not units.is_carry(op)
        follows = op in before or op.is_type(*ends) or joins_grids(op)
        if is_computed or (follows and read and found.issuperset(read[:1] if units.is_carry(op) else read)):
            found.update(_results(op))
    return found


def _moved_from(units: UnitMap, value: Value) -> list[Value]:
    """A tensor and what it was moved from; nothing if that is a constant, or the result of a product."""
    chain = [value]
    while True:
        producer = chain[-1].producer
        if chain[-1].const is not None:
            return []
        if producer is not None and (traits(producer).product or limits_product(producer)):
            return []
        source = producer.inputs[0] if producer and units.is_carry(producer) else None
        if source is None:
            return chain
        chain.append(source.original)


def _is_data(value: Value) -> bool:
    return is_plain_float(value) and value.original.const is None


def _results(op: Op) -> Iterator[Value]:
    return (value for value in op.outputs if value is not None)
