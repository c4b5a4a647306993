"""Weights in integers beside data in float: a target that does nothing else, and which tables count."""

from __future__ import annotations

from qc.ir.facts.op_table import TABLE
from qc.ir.facts.scopes import Scopes
from qc.ir.graph import Op, Value

from ...framework.target import Target
from ...framework.target_rules import OpRule

# The least share that a table of rows has of all numbers in constants. Smaller ones, of positions or
# rotations, save little, and their errors are in all that follows.
_LEAST_SHARE = 0.02
_LOOKUP = "Gather"
# A matrix may be transposed on its way to a product.
_READ_WEIGHTS = [*(op_type for op_type, traits in TABLE.items() if traits.product), _LOOKUP, "Transpose"]


def storing_weights_alone(target: Target, asked_by: str) -> Target:
    """The target with rules that store the weights of all ops in integers and compute in float.

    Args:
        asked_by: the option that wants it so.
    """
    why = "activations stay float"
    ops = {op_type: target.rule_for(op_type).storing_weights(why, asked_by) for op_type in _READ_WEIGHTS}
    default = OpRule().in_float(why, asked_by)
    return target.model_copy(update={"ops": ops, "default": default, "regions": {}, "supergroups": ()})


def large_tables(scopes: Scopes) -> frozenset[Value]:
    """The constants that Gather looks rows up in, if they hold a good part of all numbers of the model."""
    constants = {value for graph in scopes.graphs for value in graph.values() if value.is_float}
    sizes = {value: value.const.size for value in constants if value.const is not None}
    tables = {table_of(op) for op in scopes.ops}
    least = _LEAST_SHARE * sum(sizes.values())
    return frozenset(value for value in tables if value is not None and sizes.get(value, 0) >= max(least, 1))


def table_of(op: Op) -> Value | None:
    """What an op looks rows up in, if it does."""
    if not op.is_type(_LOOKUP):
        return None
    (data, *_) = op.inputs
    return data.original if data is not None else None


def has_rows_in_codes(scopes: Scopes, target: Target, op: Op) -> bool:
    """Whether a target has the rows of a table in codes that an op looks up, though it gives floats.

    Nothing but lookups may read it, as it would be stored in float as well; nor may those of bodies where
    there is a DequantizeLinear in front of lookups: that would dequantize all of it in every body.
    """
    table = table_of(op)
    if not target.lowering.stored_tables_from or table is None or table.const is None:
        return False
    uses = list(scopes.uses(table))
    looked_up = (
        use.op.is_type(_LOOKUP) and use.port == 0 and not use.op.attribute("axis", 0) for use in uses
    )
    is_passed_on = scopes.leaves(table) or scopes.onward(table)
    is_table = len(table.const.shape) == 2 and not is_passed_on and all(looked_up)
    in_place = target.lowering.products != "standard" or all(use.op.graph is table.graph for use in uses)
    return is_table and in_place and table.const.size >= target.lowering.stored_tables_from
