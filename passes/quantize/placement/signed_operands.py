"""Data that must have signed codes and no zero point, as a device multiplies it by other data."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from qc.ir.facts.op_traits import joins_grids, traits
from qc.ir.graph import Op, Value

from .units import Input, UnitMap

# What these make is not negative, so that unsigned codes have no zero point either.
_NOT_NEGATIVE = ("Relu", "Sigmoid", "Softmax")


def signed_operands(units: UnitMap) -> frozenset[Value]:
    """The originals of tensors with ``signed_operands``, and of all data that has one grid with them."""
    alike = nx.Graph()
    for unit in units.units:
        is_join = unit.rule.share_grid and joins_grids(unit.root)
        if units.is_carry(unit.root) or is_join:
            read = [one.value.original for one in units.inputs(unit) if one.value.original.const is None]
            alike.add_edges_from((one, made.original) for one in read for made in units.outputs(unit))
    found: set[Value] = set()
    for value, _, _ in operands(units):
        if value.original not in found:
            reached = nx.node_connected_component(alike, value.original) if value.original in alike else ()
            found.update((value.original, *reached))
    return frozenset(found)


def operands(units: UnitMap) -> Iterator[Input]:
    """The readings of data by products of two data tensors whose rule wants them symmetric.

    The first one may be unsigned if it is never negative.
    """
    for unit in units.integer:
        read = [one for one in units.inputs(unit) if one.value.original.const is None]
        is_product = traits(unit.root).product is not None and len(read) > 1
        for one in read if unit.rule.signed_operands and is_product else ():
            if one.port != 0 or not _is_not_negative(units, one.value.original):
                yield one


def _is_not_negative(units: UnitMap, value: Value) -> bool:
    maker: Op | None = value.graph.producer(value)
    while maker is not None and units.is_carry(maker):
        source = maker.graph.op_inputs(maker)[0]
        maker = maker.graph.producer(source) if source is not None else None
    if maker is None:
        return False
    region = units.unit_of(maker).region
    return maker.is_type(*_NOT_NEGATIVE) or (region is not None and region.name == "softmax")
