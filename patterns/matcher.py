"""Matches of patterns: at one op, and in a whole graph, where none shares an op with another."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from qc.ir.errors import UsageError, a_type
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from .attempt import Solution
from .automaton import State
from .compiled import CompiledPattern, Form, forms_of
from .explain import mismatch
from .lookahead import Lookahead, View, automaton_of
from .mismatch import FailedTry, Mismatch, Reason
from .pattern import Attribute, Pattern
from .search import Search
from .supergroup import Match, Supergroup, pattern_of
from .term import term_of

AnyPattern = Pattern | Supergroup


def match_at(pattern: AnyPattern, op: Op) -> Match | Mismatch:
    """Matches a pattern whose result is computed by ``op``.

    Returns:
        The first match in the order of the alternatives, or where and why the best attempt failed.
    """
    finder = Finder(View(op.graph))
    failures: list[FailedTry] = []
    for result in op.outputs:
        match = next(finder.matches(pattern, result, failures), None) if result is not None else None
        if match is not None:
            return match
    return mismatch(pattern, op, failures, finder.view)


def matches_at(pattern: AnyPattern, op: Op) -> Iterator[Match]:
    """All distinct matches (by ops, captures, attributes and choices) whose result is computed by ``op``."""
    finder = Finder(View(op.graph))
    for result in op.outputs:
        if result is not None:
            yield from finder.matches(pattern, result)


class Finder:
    """Turns what a search finds into matches.

    Args:
        view: the graph.
    """

    def __init__(self, view: View) -> None:
        self.view = view

    def failure(self, pattern: AnyPattern, form: Form, result: Value) -> FailedTry | None:
        """Why there is no match with this result: the failure that came nearest. None if there is one."""
        failures: list[FailedTry] = []
        if any(self.matches_of(pattern, form, result, failures)):
            return None
        return max(failures, key=lambda failure: failure.score, default=None)

    def matches(
        self, pattern: AnyPattern, result: Value, failures: list[FailedTry] | None = None
    ) -> Iterator[Match]:
        """All distinct matches with this result.

        Args:
            pattern: the pattern.
            result: its (main) result.
            failures: gets what was rejected and, at the end, the best failures of the search.
        """
        whole = pattern_of(pattern)
        if self.view.plausible(term_of(whole), result):
            for form in forms_of(whole):
                yield from self.matches_of(pattern, form, result, failures)
        elif failures is not None:
            failures.append(FailedTry(frozenset(), Reason.WRONG_OP, whole, result))

    def matches_of(
        self, pattern: AnyPattern, form: Form, result: Value, failures: list[FailedTry] | None = None
    ) -> Iterator[Match]:
        """The matches of one form of a pattern, as :meth:`matches` has those of all."""
        check = pattern.check if isinstance(pattern, Supergroup) else None
        seen: set[tuple[object, ...]] = set()
        search = Search(self.view, form.compiled, result)
        for solution in search:
            match, refusal = self._match(pattern, form, result, solution)
            meaning = (match.captures, match.attributes, match.choices)
            key = (solution.ops, match.results, refusal, *(tuple(each.items()) for each in meaning))
            if key in seen:
                continue
            seen.add(key)
            refusal = refusal or (check(match) if check is not None else None)
            if refusal is None:
                yield match
            elif failures is not None:
                element, choices = form.compiled.root.element, tuple(match.choices.items())
                rejected = (solution.ops, Reason.CHECK, element, result, (refusal,))
                failures.append(FailedTry(*rejected, choices=choices))
        if failures is not None and search.attempt.failure is not None:
            failure = search.attempt.failure
            failures.append(failure._replace(choices=(*form.choices, *failure.choices)))

    def _match(
        self, pattern: AnyPattern, form: Form, result: Value, solution: Solution
    ) -> tuple[Match, str | None]:
        """A solution as a match; with the reason if a name would stand for two things."""
        meaning: tuple[dict[str, Value], dict[str, object], dict[str, str]] = ({}, {}, dict(form.choices))
        clash = None
        for names, name, held in _named(form.compiled, solution, meaning):
            if names.setdefault(name, held) != held:
                clash = f"two things named '{name}': {names[name]} and {held}"
        ops = tuple(sorted(solution.ops, key=self.view.positions.__getitem__))
        root = self.view.producer[result]
        assert root is not None
        supergroup = pattern if isinstance(pattern, Supergroup) else None
        results = (result, *form.compiled.further_results(solution.bindings))
        return Match(supergroup, self.view.graph, root, results, ops, *meaning), clash


def _named(
    compiled: CompiledPattern, solution: Solution, meaning: tuple[dict[str, Any], ...]
) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """What the slots of a solution hold under which names: captured values, attributes, choices."""
    captures, attributes, choices = meaning
    for element, slot in compiled.slots.items():
        found = solution.bindings[slot]
        if isinstance(element, Attribute):
            if isinstance(found, tuple):
                yield attributes, element.name, found[0]
        elif element.name and isinstance(found, Value) and element not in compiled.choices:
            yield captures, element.name, found
    for name, label in compiled.taken_options(solution.bindings):
        yield choices, name, label


class _Candidate(NamedTuple):
    """A form of a pattern that may match with a result, as it stands in the queue of all.

    Attributes:
        order: minus the number of ops; as long as there is no match yet, the most that it can have.
        rank: the form.
        place: what comes first among equals.
        result: the value.
        tried: how many matches there were until now.
        match: the last of them.
    """

    order: int
    rank: int
    place: int
    result: Value
    tried: int = 0
    match: Match | None = None


class Matcher:
    """Patterns on one graph, which must not change meanwhile.

    Args:
        graph: the graph, without the graphs nested in it.
        patterns: patterns and supergroups.

    Attributes:
        forms: the patterns in all their forms.
        view: the graph with what can match where.

    Raises:
        UsageError: a pattern whose root is not an op.
    """

    def __init__(self, graph: Graph, patterns: Sequence[AnyPattern]) -> None:
        self.forms = [(each, form) for each in patterns for form in forms_of(pattern_of(each))]
        self.view = Lookahead(graph, automaton_of(tuple(term_of(pattern_of(each)) for each in patterns)))
        self._finder = Finder(self.view)

    def matches(self, pattern: AnyPattern, result: Value) -> Iterator[Match]:
        """All distinct matches of one of the patterns with this result."""
        return self._finder.matches(pattern, result)

    def find_all(self, taken: Iterable[Op] = ()) -> list[Match]:
        """The matches of all patterns, see :func:`find_all`."""
        queue = list(self._candidates())
        heapq.heapify(queue)
        claimed = set(taken)
        found: list[Match] = []
        while queue:
            candidate = heapq.heappop(queue)
            if self.view.producer[candidate.result] in claimed:
                continue
            if candidate.match is not None and claimed.isdisjoint(candidate.match.ops):
                claimed.update(candidate.match.ops)
                found.append(candidate.match)
                continue
            matches = enumerate(self._finder.matches_of(*self.forms[candidate.rank], candidate.result), 1)
            for tried, match in islice(matches, candidate.tried, None):
                if claimed.isdisjoint(match.ops):
                    order = -len(match.ops)
                    heapq.heappush(queue, candidate._replace(order=order, tried=tried, match=match))
                    break
        return sorted(found, key=lambda match: self.view.positions[match.root])

    def _candidates(self) -> Iterator[_Candidate]:
        """The values that a form can have as result, each with the most ops of such a match."""
        known: dict[State, list[int]] = {}
        outputs = (value for op in self.view.graph.ops() for value in op.outputs)
        for place, result in enumerate(value for value in outputs if value is not None):
            state = self.view.state[result]
            if state not in known:
                known[state] = [rank for rank, (_, form) in enumerate(self.forms) if form.term in state.terms]
            for rank in known[state]:
                yield _Candidate(-self.view.reach(self.forms[rank][1].term, result), rank, place, result)


def find_all(
    graph: Graph, patterns: AnyPattern | Sequence[AnyPattern], taken: Iterable[Op] = ()
) -> list[Match]:
    """All matches in a graph, none sharing an op with another.

    Matches with more ops come first, then the order of ``patterns``, then the order of the graph; a match
    whose ops are taken gives way to the next one of the same pattern at the same op. The options of a choice
    at the root of a pattern count as patterns of their own.

    Args:
        graph: the graph, without the graphs nested in it, such as ``model.graph``.
        patterns: a pattern or supergroup, or several; the earlier one wins among matches of equal size.
        taken: ops that no match may use.

    Returns:
        The matches in the order of their results in the graph.

    Raises:
        UsageError: a pattern whose root is not an op, or a model in place of a graph.
    """
    if not isinstance(graph, Graph):
        hint = (
            "take model.graph, or each of model.graphs()"
            if isinstance(graph, Model)
            else "qc.ir.lift() makes one"
        )
        raise UsageError(f"patterns match in a qc.ir.Graph, not in {a_type(graph)}: {hint}")
    several = [patterns] if isinstance(patterns, AnyPattern) else patterns
    return Matcher(graph, several).find_all(taken)
