"""Finds supergroups: sets of ops that a device runs as one."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.model import Model
from qc.patterns import find_all, supergroup_names, supergroups

from ..base import Pass, Stage
from ..context import PassContext


@dataclass(frozen=True)
class MatchSupergroups(Pass):
    """Makes a region of every supergroup that the target knows, the largest first.

    Each op joins at most one region. A supergroup that no rule of the target names stays the ops it is.
    """

    name = "match-supergroups"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        known = supergroups(name for name in supergroup_names() if target.region_rule(name) is not None)
        claimed = {op for region in model.regions for op in region.ops}
        for graph in model.graphs():
            for match in find_all(graph, known, taken=claimed):
                rule = target.region_rule(match.name)
                model.add_region(match.region(), match.name, rule.asked_by if rule is not None else "")
