"""What the target runs as one operator, with the rule that it follows there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qc.ir.facts.scopes import Scopes
from qc.ir.graph import Op, Region
from qc.ir.model import Model

from ...framework.target import Target
from ...framework.target_rules import OpRule


class Reason(NamedTuple):
    """Why a tensor stays float.

    Attributes:
        text: the reason, as the user reads it.
        asked_by: the line of configuration behind it; empty if there is none.
        suggestion: what would change it; empty if nothing is known to.
        stores_weights: whether weights are stored in integers all the same.
    """

    text: str
    asked_by: str = ""
    suggestion: str = ""
    stores_weights: bool = False


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


def units_of(model: Model, scopes: Scopes, target: Target, left_float: Mapping[Op, Reason]) -> Iterator[Unit]:
    """All units, each op in one; what is in ``left_float`` runs in float, for that reason."""

    def chosen(rule: OpRule, ops: tuple[Op, ...]) -> OpRule:
        reason = next((reasons[op] for op in ops if op in reasons), None)
        if reason is None:
            return rule
        changed = rule.storing_weights if reason.stores_weights else rule.in_float
        return changed(reason.text, reason.asked_by)

    reasons = {**_in_float_bodies(scopes, target, left_float), **left_float}
    claimed: set[Op] = set()
    inside = set(scopes.graphs)
    for region in model.regions:
        known = target.region_rule(region.name)
        if region.graph in inside and known is not None:
            rule = chosen(known, region.ops)
            claimed.update(region.ops)
            if rule.runs in ("float", "weights"):
                yield from (Unit((op,), rule) for op in region.ops)
            else:
                yield Unit(region.ops, rule, region)
    for op in scopes.ops:
        if op not in claimed:
            yield Unit((op,), chosen(_rule_of(model, op, target), (op,)))


def _rule_of(model: Model, op: Op, target: Target) -> OpRule:
    if (op.domain, op.op_type, op.overload) in model.functions:
        return OpRule(runs="float", why="it calls a function of the model; 'inline-functions' opens it")
    rule = target.rule_for(op.op_type, op.domain)
    barred = rule.barred_by(op)
    if barred is not None:
        return rule.in_float(f"the target does not run it with {barred}", rule.asked_by)
    return rule


def _in_float_bodies(scopes: Scopes, target: Target, left_float: Mapping[Op, Reason]) -> dict[Op, Reason]:
    """The ops of bodies that cannot run in integers because of their owner, with the reason."""
    reasons: dict[Op, Reason] = {}
    for graph in scopes.graphs:
        owner = graph.parent
        if owner is None:
            continue
        rule = target.rule_for(owner.op_type, owner.domain)
        if owner not in scopes.branch_edges:
            why = Reason(f"it is inside {owner.label}, whose bodies only its runtime knows how to run")
        elif owner in reasons:
            why = reasons[owner]
        elif owner in left_float or rule.runs == "float":
            because = rule.why or "the target has no integer kernels there"
            said = left_float.get(owner) or Reason(because, rule.asked_by)
            text = f"it is inside {owner.label}, which runs in float: {said.text}"
            why = Reason(text, said.asked_by)
        else:
            continue
        reasons.update(dict.fromkeys(graph.ops(), why))
    return reasons
