"""Near matches: where a pattern fits but for a little, found for a whole graph at once.

How near a term comes to matching at a value follows from how near its parts come at the inputs. Like the
states of :mod:`qc.patterns.automaton` this is found bottom-up and once per distinct situation. Only where
most of a pattern fits is it tried in earnest, to learn what is wrong.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .automaton import Situation, all_orders
from .compiled import Form
from .explain import mismatch
from .lookahead import Facts, Lookahead, View
from .matcher import Finder, Matcher
from .mismatch import FailedTry, Mismatch, Reason
from .pattern import OpPattern
from .supergroup import Match, Supergroup
from .term import Term, children_first

FEWEST_OPS = 4
"""Smaller patterns tell nothing unless all their ops fit: any product is nearly a SiLU."""

# How many places are looked at for near matches and for attempts, those with the most ops first.
_MOST_NEAR, _MOST_ATTEMPTS = 300, 50
_ALL_FITS = frozenset((Reason.USED_OUTSIDE, Reason.DETOUR, Reason.CHECK))


@dataclass(frozen=True, eq=False)
class NearMatch:
    """A supergroup of which at least two thirds of the ops are there.

    Attributes:
        group: the supergroup.
        root: the op that would compute its result.
        failure: what is wrong.
        view: the graph as the matcher saw it.
    """

    group: Supergroup
    root: Op
    failure: FailedTry
    view: View

    @property
    def ops(self) -> frozenset[Op]:
        """The ops that fit."""
        return self.failure.ops

    @property
    def fits_whole(self) -> bool:
        """Whether the structure is all there, but something else forbids the match."""
        return self.failure.reason in _ALL_FITS

    @property
    def is_used_outside(self) -> bool:
        """Whether what forbids the match is that a value made inside is used outside."""
        return self.failure.reason == Reason.USED_OUTSIDE

    @cached_property
    def mismatch(self) -> Mismatch:
        """What is wrong, in words; they are made when they are asked for."""
        return mismatch(self.group, self.root, [self.failure], self.view)


def near_matches(matcher: Matcher, matches: Iterable[Match], taken: Iterable[Op] = ()) -> list[NearMatch]:
    """Where supergroups nearly match; no op is in two of the near matches.

    Args:
        matcher: the graph and the supergroups; of those that come equally near, the earlier one counts.
        matches: what was found instead.
        taken: further ops that are not free.

    Returns:
        The near matches in the order of their results in the graph.
    """
    groups = _groups(matcher)
    finder = Finder(View(matcher.view.graph))
    owners = {op: match for match in matches for op in match.ops}
    claimed = set(taken)
    found: list[NearMatch] = []
    candidates = (each for each in _candidates(matcher.view, groups) if _is_promising(each, owners))
    for candidate in heapq.nsmallest(_MOST_NEAR, candidates, key=lambda each: each.order):
        group, form = groups[candidate.rank]
        failure = finder.failure(group, form, candidate.result) if candidate.root not in claimed else None
        if failure is not None and _is_near(failure, group, candidate.score) and _is_news(failure, owners):
            claimed.update(failure.ops)
            found.append(NearMatch(group, candidate.root, failure, finder.view))
    return sorted(found, key=lambda near: finder.view.positions[near.root])


def best_attempts(matcher: Matcher) -> list[NearMatch]:
    """The failed attempts that came nearest to a match, the best first; at most one for each op.

    Args:
        matcher: the graph and the supergroups.
    """
    groups = _groups(matcher)
    finder = Finder(View(matcher.view.graph))
    best: dict[Op, NearMatch] = {}
    candidates = _candidates(matcher.view, groups)
    for candidate in heapq.nsmallest(_MOST_ATTEMPTS, candidates, key=lambda each: each.order):
        (group, form), root = groups[candidate.rank], candidate.root
        failure = finder.failure(group, form, candidate.result)
        if failure is not None and (root not in best or failure.score > best[root].failure.score):
            best[root] = NearMatch(group, root, failure, finder.view)
    return sorted(best.values(), key=lambda near: near.failure.score, reverse=True)


def _groups(matcher: Matcher) -> list[tuple[Supergroup, Form]]:
    return [(group, form) for group, form in matcher.forms if isinstance(group, Supergroup)]


def _is_promising(candidate: _Candidate, owners: Mapping[Op, Match]) -> bool:
    """Whether enough of a supergroup fits, and most of that is not in the match that the result is in."""
    score, owner = candidate.score, owners.get(candidate.root)
    if owner is not None and 2 * len(owner.ops) >= score.matched:
        return False
    return score.is_near or (score.matched > 1 and not score.missing)


def _is_near(failure: FailedTry, group: Supergroup, score: _Score) -> bool:
    """Whether a failure is worth telling: everything fits, or enough of a pattern that is not too small."""
    if failure.reason == Reason.WRONG_OP and group.kind.startswith("weighted"):
        return False  # without the weighted op, what follows it is ordinary arithmetic
    return failure.reason in _ALL_FITS or score.is_near


def _is_news(failure: FailedTry, owners: Mapping[Op, Match]) -> bool:
    """Whether most of the ops are free. If all fit, they may also belong to smaller matches inside."""
    owned = [op for op in failure.ops if op in owners]
    if failure.reason in _ALL_FITS:
        owned = [op for op in owned if not failure.ops > set(owners[op].ops)]
    return 2 * len(owned) < len(failure.ops)


# -- how near terms come ------------------------------------------------------------------------------


class _Score(NamedTuple):
    """Ops of a pattern that fit, and ops and constants that do not; shared ones count more than once."""

    matched: int
    missing: int

    @property
    def margin(self) -> int:
        return self.matched - self.missing

    @property
    def worth(self) -> int:
        """What to look at first: what is missing counts more than what is there."""
        return self.matched - 3 * self.missing

    @property
    def is_near(self) -> bool:
        return self.matched >= 2 * self.missing and self.matched + self.missing >= FEWEST_OPS


class _Scores:
    """The scores of those terms of which at least half fits at a value, and of those the whole supergroups.

    Equal ones are one object.
    """

    __slots__ = ("by_term", "wholes")

    def __init__(self, by_term: Mapping[Term, _Score], roots: Container[Term] = ()) -> None:
        self.by_term = by_term
        self.wholes = [(term, score) for term, score in by_term.items() if term in roots]


class _Candidate(NamedTuple):
    """A place to look at: how much may fit, the supergroup, the op, the result."""

    score: _Score
    rank: int
    root: Op
    result: Value

    @property
    def order(self) -> tuple[int, int]:
        """What to look at first."""
        return -self.score.worth, self.rank


_NOTHING = _Scores({})


class _Table(Facts[Value | None, _Scores]):
    """The scores at the first outputs of all ops of a graph."""

    def __init__(self, view: Lookahead, roots: Collection[Term]) -> None:
        super().__init__(lambda _: _NOTHING)
        self._automaton = view.automaton
        self._users: dict[Term, list[Term]] = {}
        for term in children_first(roots):
            for child in dict.fromkeys(term.children) if isinstance(term.element, OpPattern) else ():
                self._users.setdefault(child, []).append(term)
        self._roots = frozenset(roots)
        self._known: dict[frozenset[tuple[Term, _Score]], _Scores] = {}
        found = Facts(self._scores)
        for op in view.graph.ops():
            first = view.first_output(op)
            if first is not None:
                self[first] = found[view.situations[op], tuple([self[value] for value in view.inputs[op]])]

    def _scores(self, at: tuple[Situation, tuple[_Scores, ...]]) -> _Scores:
        automaton, (situation, inputs) = self._automaton, at
        found: dict[Term, _Score] = {}
        scored = (term for each in inputs for term in each.by_term)
        users = (user for term in scored for user in self._users.get(term, ()))
        fitting = dict(automaton.op_terms(situation))
        for term in dict.fromkeys((*fitting, *users)):
            score = self._best_order(term, situation, inputs, fitting.get(term, False))
            if score is not None and score.matched and score.margin >= 0:
                found[term] = score
        pending = list(found)
        while pending:
            term = pending.pop()
            for above in automaton.alternatives(term):
                if above not in found or found[term].margin > found[above].margin:
                    found[above] = found[term]
                    pending.append(above)
        return self._known.setdefault(frozenset(found.items()), _Scores(found, self._roots))

    def _best_order(
        self, term: Term, situation: Situation, inputs: tuple[_Scores, ...], is_fitting: bool
    ) -> _Score | None:
        """The score of an op pattern, with the inputs in the order that fits best.

        None if their number does not fit. An op of another type, or with other attributes, counts as missing;
        its inputs may fit.
        """
        absent = self._automaton.absent
        best: _Score | None = None
        for order in all_orders(
            term.element, situation.kind, [state is not absent for state in situation.inputs]
        ):
            score = _Score(1, 0) if is_fitting else _Score(0, 1)
            for child, port in zip(term.children, order, strict=True):
                is_given = port < len(inputs)
                state = situation.inputs[port] if is_given else absent
                part = inputs[port].by_term.get(child) if is_given else None
                if part is None:
                    part = _Score(0, 0 if child in state.terms else max(1, child.least))
                score = _Score(score.matched + part.matched, score.missing + part.missing)
            if best is None or score.margin > best.margin:
                best = score
        return best


def _candidates(view: Lookahead, groups: Sequence[tuple[Supergroup, Form]]) -> Iterator[_Candidate]:
    """The results of which at least half of a supergroup fits, and the op that computes them."""
    roots = [form.term for _, form in groups]
    ranks: dict[Term, list[int]] = {}
    for rank, root in enumerate(roots):
        ranks.setdefault(root, []).append(rank)
    table = _Table(view, roots)
    for op in view.graph.ops():
        result = view.first_output(op)
        if result is None:
            continue
        for term, score in table[result].wholes:
            if term.accepts((op.domain, op.op_type)):
                yield from (_Candidate(score, rank, op, result) for rank in ranks[term])
