"""All matches in a graph: the largest first, none sharing an op with another."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from qc.ir.graph import Graph, Op, Value

from .automaton import State
from .lookahead import Lookahead, automaton_of
from .match import Finder, Match
from .pattern import Pattern
from .program import program_of
from .supergroup import Supergroup, pattern_of


class _Candidate(NamedTuple):
    """A pattern that may match with a result, as it stands in the queue of all.

    Attributes:
        order: minus the number of ops; as long as there is no match yet, the most that it can have.
        rank: the pattern.
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
        view: the graph with what can match where.

    Raises:
        UsageError: a pattern whose root is not an op.
    """

    def __init__(self, graph: Graph, patterns: Sequence[Pattern | Supergroup]) -> None:
        self.patterns = tuple(patterns)
        self._programs = [program_of(pattern_of(pattern)) for pattern in patterns]
        self.view = Lookahead(graph, automaton_of(tuple(program.root.shape for program in self._programs)))
        self._finder = Finder(self.view)

    def matches(self, pattern: Pattern | Supergroup, result: Value) -> Iterator[Match]:
        """All distinct matches of one of the patterns with this result."""
        return self._finder.valid(pattern, result)

    def find_all(self, taken: Iterable[Op] = ()) -> list[Match]:
        """The matches of all patterns, see :func:`find_all`."""
        queue = list(self._candidates())
        heapq.heapify(queue)
        claimed = set(taken)
        found: list[Match] = []
        while queue:
            candidate = heapq.heappop(queue)
            if self.view.producer(candidate.result) in claimed:
                continue
            if candidate.match is not None and claimed.isdisjoint(candidate.match.ops):
                claimed.update(candidate.match.ops)
                found.append(candidate.match)
                continue
            matches = enumerate(self.matches(self.patterns[candidate.rank], candidate.result), 1)
            untried = islice(matches, candidate.tried, None)
            for tried, match in untried:
                if claimed.isdisjoint(match.ops):
                    order = -len(match.ops)
                    heapq.heappush(queue, candidate._replace(order=order, tried=tried, match=match))
                    break
        return sorted(found, key=lambda match: self.view.positions[match.root])

    def _candidates(self) -> Iterator[_Candidate]:
        """The values that a pattern can have as result, each with the most ops of such a match."""
        known: dict[State, list[int]] = {}
        for place, result in enumerate(self._results()):
            state = self.view.state(result)
            if state not in known:
                shapes = enumerate(program.root.shape for program in self._programs)
                known[state] = [rank for rank, shape in shapes if shape in state.shapes]
            for rank in known[state]:
                program = self._programs[rank]
                most = self.view.reach(program.root, result) + program.further_size
                yield _Candidate(-most, rank, place, result)

    def _results(self) -> Iterator[Value]:
        graph = self.view.graph
        return (value for op in graph.ops() for value in graph.op_outputs(op) if value is not None)


def find_all(graph: Graph, patterns: Sequence[Pattern | Supergroup], taken: Iterable[Op] = ()) -> list[Match]:
    """All matches in a graph, none sharing an op with another.

    Matches with more ops come first, then the order of ``patterns``, then the order of the graph; a match
    whose ops are taken gives way to the next one of the same pattern at the same op.

    Args:
        graph: the graph, without the graphs nested in it.
        patterns: patterns and supergroups; the earlier one wins among matches of equal size.
        taken: ops that no match may use.

    Returns:
        The matches in the order of their results in the graph.

    Raises:
        UsageError: a pattern whose root is not an op.
    """
    return Matcher(graph, patterns).find_all(taken)
