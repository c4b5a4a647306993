"""How far the best attempts to match a supergroup got, in a whole model or at one op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.passes.framework.target import Target
from qc.patterns import (
    Match,
    Matcher,
    Mismatch,
    Supergroup,
    best_attempts,
    match_at,
    supergroup_names,
    supergroups,
)

_MOST_DOWNSTREAM = 200  # ops that are tried as the result of what one op is part of


@dataclass(frozen=True)
class Explanation:
    """What became of a supergroup.

    Attributes:
        groups: the supergroup; several if it has patterns of different form.
        matches: where it is, as if no other supergroup were there.
        attempts: the best failed attempts, the one that came nearest first.
    """

    groups: tuple[Supergroup, ...]
    matches: tuple[Match, ...]
    attempts: tuple[Mismatch, ...]


def named_supergroups(name: str, target: Target | None = None) -> tuple[Supergroup, ...]:
    """The supergroups of that name, of qc, of a plugin, or of a target file.

    Raises:
        UsageError: there is none.
    """
    own = target.own_supergroups() if target is not None else ()
    found = tuple(group for group in own if group.name == name)
    if found or name in supergroup_names():
        return found or supergroups([name])
    known = [*(group.name for group in own), *supergroup_names()]
    raise UsageError(
        f"there is no supergroup '{name}'{nearest(name, known)}; 'qc list-supergroups' shows all"
    )


def explain(model: Model, groups: Sequence[Supergroup], node: str | None = None) -> Explanation:
    """Where supergroups match and where they nearly do.

    Args:
        model: the model.
        groups: the supergroups.
        node: the name of an op, or of one of its outputs: only matches and attempts it is part of count.

    Raises:
        UsageError: the model has no such op.
    """
    if node is not None:
        return _at(op_named(model, node), groups)
    matchers = [Matcher(graph, groups) for graph in model.graphs()]
    matches = tuple(match for matcher in matchers for match in matcher.find_all())
    owned = {op for match in matches for op in match.ops}
    attempts = [near.mismatch for matcher in matchers for near in best_attempts(matcher)]
    free = [attempt for attempt in attempts if 2 * len(owned.intersection(attempt.ops)) < attempt.matched]
    return Explanation(tuple(groups), matches, _best_first(free))


def op_named(model: Model, name: str) -> Op:
    """The op of that name, or the one that computes the value of that name, in any graph of the model.

    Raises:
        UsageError: there is none.
    """
    by_output: dict[str, Op] = {}
    by_name: dict[str, Op] = {}
    for op in model.ops():
        by_name.setdefault(op.name, op)
        for value in op.outputs:
            if value is not None:
                by_output.setdefault(value.name, op)
    found = by_name.get(name) if name else None
    found = found or by_output.get(name)
    if found is None:
        known = [each for each in (*by_name, *by_output) if each]
        raise UsageError(f"no op is named '{name}' or computes it{nearest(name, known)}")
    return found


def _at(op: Op, groups: Sequence[Supergroup]) -> Explanation:
    """What became of supergroups around one op."""
    matcher = Matcher(op.graph, groups)
    matches = tuple(match for match in matcher.find_all() if op in match.ops)
    attempts = []
    for root in _downstream(op) if not matches else ():
        for group in groups:
            answer = match_at(group, root)
            if isinstance(answer, Mismatch) and (root is op or op in answer.ops):
                attempts.append(answer)
    return Explanation(tuple(groups), matches, _best_first(attempts))


def _downstream(start: Op) -> Iterator[Op]:
    """An op and those that its results lead to, the nearest first."""
    seen = {start: None}
    pending = [start]
    for op in pending:
        yield op
        for value in op.outputs:
            for use in value.uses if value is not None else ():
                if use.op not in seen and len(seen) < _MOST_DOWNSTREAM:
                    seen[use.op] = None
                    pending.append(use.op)


def _best_first(attempts: Sequence[Mismatch]) -> tuple[Mismatch, ...]:
    """The attempts in order, of those that failed for the same reason at the same place the best."""
    ordered = sorted(attempts, key=lambda attempt: -attempt.matched)
    return tuple({attempt.reason: attempt for attempt in reversed(ordered)}.values())[::-1]
