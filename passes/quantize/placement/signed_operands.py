"""Data that must have signed codes and no zero point, as a device multiplies it by other data."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from qc.ir.facts.op_traits import joins_grids, traits
from qc.ir.facts.result_range import result_range
from qc.ir.graph import Value

from .units import Input, UnitMap


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

    The first one may be unsigned if it is never negative: its codes have no zero point either.
    """
    for unit in units.integer:
        read = [one for one in units.inputs(unit) if one.value.original.const is None]
        is_product = traits(unit.root).product is not None and len(read) > 1
        for one in read if unit.rule.signed_operands and is_product else ():
            if one.port != 0 or result_range(one.value)[0] < 0:
                yield one
