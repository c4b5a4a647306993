"""Finds supergroups: sets of ops that a device runs as one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from qc.ir.graph import Op
from qc.ir.journal import NEAR_MATCH, Remark
from qc.ir.model import Model
from qc.patterns import Match, Matcher, NearMatch, near_matches

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from ..framework.target import Target


@dataclass(frozen=True)
class MatchSupergroups(Pass):
    """Makes a region of every supergroup that the target knows, the largest first.

    Each op joins at most one region. A supergroup that no rule of the target names stays the ops it is. A
    block, such as attention or an LSTM cell, becomes a region only if a rule has its exact name. Supergroups
    that the target file itself defines come first among those of equal size. Where one nearly fits, a remark
    says what is in the way.
    """

    name = "match-supergroups"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        target = context.required_target()
        known = target.known_supergroups()
        claimed = {op for region in model.regions for op in region.ops}
        for graph in model.graphs():
            matcher = Matcher(graph, known)
            matches = [one for one in matcher.find_all(taken=claimed) if _is_run(target, one)]
            for match in matches:
                model.add_region(match.region(), match.name, _asked_by(target, match.name))
            _note_near_matches(model, matcher, matches, claimed, target)


def _note_near_matches(
    model: Model, matcher: Matcher, matches: Collection[Match], claimed: Collection[Op], target: Target
) -> None:
    for near in near_matches(matcher, matches, claimed):
        mismatch = near.mismatch
        name = mismatch.name
        reason = f"{name} does not match, though {mismatch.extent}: {mismatch.reason}"
        asked_by = _asked_by(target, name)
        about, suggestion = near.root, _suggestion(near)
        model.journal.note(Remark(NEAR_MATCH, about, about.label, reason, None, asked_by, suggestion))


def _is_run(target: Target, match: Match) -> bool:
    """Whether the target runs a supergroup with such attributes and weights as one operator."""
    rule = target.region_rule(match.name)
    return rule is None or rule.barred_by(match.root, match.ops) is None


def _asked_by(target: Target, name: str) -> str:
    rule = target.region_rule(name)
    return rule.asked_by if rule is not None else ""


def _suggestion(near: NearMatch) -> str:
    """What a user can do about a near match."""
    name, value = near.mismatch.name, near.failure.value
    if near.is_used_outside and value is not None:
        return f"compute '{value.name}' a second time for what reads it outside of the {name}"
    if near.fits_whole:
        return ""
    return f"export the model with the spelling of a {name} that is expected here"
