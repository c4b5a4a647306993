"""Matches, and the three ways to ask for them: at one op, all at one op, all in a graph."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qc.ir.graph import Graph, Op, Value
from qc.ir.region import Region

from .attempt import Solution
from .attributes import constant_data
from .engine import Engine
from .mismatch import Mismatch
from .pattern import Attribute, Pattern
from .program import Program, program_of
from .supergroup import Supergroup


@dataclass(frozen=True, eq=False)
class Match:
    """A pattern found in a graph.

    Attributes:
        name: the supergroup, with the options taken filled in; empty for a bare pattern.
        supergroup: the supergroup; None for a bare pattern.
        graph: where it was found.
        root: the op that computes the result.
        result: the value that leaves the match.
        ops: the matched ops in topological order, ``root`` last. Constant ops are not among them.
        captures: values by the names that the pattern gave them.
        attributes: normalized attributes by the names of the pattern's attribute variables.
        choices: the options taken, by the names of the pattern's choices.
    """

    name: str
    supergroup: Supergroup | None
    graph: Graph
    root: Op
    result: Value
    ops: tuple[Op, ...]
    captures: Mapping[str, Value]
    attributes: Mapping[str, object]
    choices: Mapping[str, str]

    def __getitem__(self, name: str) -> Value:
        return self.captures[name]

    @property
    def inner(self) -> tuple[Value, ...]:
        """The values that need no quantizer: made inside (except the result), or constants of the formula."""
        parameters = set(self.captures.values()) - self._inner_captures()
        found: dict[Value, None] = {}
        for op in self.ops:
            for value in self.graph.op_inputs(op):
                if value is not None and value not in parameters and constant_data(value) is not None:
                    found[value] = None
            for value in self.graph.op_outputs(op) if op is not self.root else ():
                if value is not None:
                    found[value] = None
        return tuple(found)

    def _inner_captures(self) -> set[Value]:
        names = self.supergroup.inner if self.supergroup else ()
        return {self.captures[name] for name in names if name in self.captures}

    def region(self) -> Region:
        """The match as a region of the IR."""
        return Region(self.name, self.graph, self.ops, dict(self.captures))

    def __str__(self) -> str:
        return f"{self.name or 'match'} ({len(self.ops)} ops ending in {self.root.label})"


def match_at(pattern: Pattern | Supergroup, op: Op) -> Match | Mismatch:
    """Matches a pattern whose result is computed by ``op``.

    Returns:
        The first match in the order of the alternatives, or where and why the best attempt failed.
    """
    found = next(matches_at(pattern, op), None)
    return found if found is not None else _explain(pattern, op)


def matches_at(pattern: Pattern | Supergroup, op: Op) -> Iterator[Match]:
    """All distinct matches (by ops, captures, attributes and choices) whose result is computed by ``op``."""
    return (match for match, reason in _Finder(op.graph).matches(pattern, op) if reason is None)


def find_all(graph: Graph, patterns: Sequence[Pattern | Supergroup]) -> list[Match]:
    """All matches in a graph, none sharing an op with another.

    Matches with more ops come first, then the order of ``patterns``, then the order of the graph; a match
    whose ops are taken gives way to the next one of the same pattern at the same op.

    Returns:
        The matches in the order of their results in the graph.

    Raises:
        UsageError: a pattern whose root is not an op.
    """
    finder = _Finder(graph)
    queue: list[tuple[int, int, int, Match, Iterator[Match]]] = []
    for place, (rank, candidates) in enumerate(finder.candidates(patterns)):
        _push(queue, rank, place, candidates)
    claimed: set[Op] = set()
    taken: list[Match] = []
    while queue:
        _, rank, place, match, rest = heapq.heappop(queue)
        if claimed.isdisjoint(match.ops):
            claimed.update(match.ops)
            taken.append(match)
        else:
            _push(queue, rank, place, rest)
    return sorted(taken, key=lambda match: finder.position(match.root))


def _push(
    queue: list[tuple[int, int, int, Match, Iterator[Match]]], rank: int, place: int, rest: Iterator[Match]
) -> None:
    match = next(rest, None)
    if match is not None:
        heapq.heappush(queue, (-len(match.ops), rank, place, match, rest))


def _explain(pattern: Pattern | Supergroup, op: Op) -> Mismatch:
    name = pattern.name if isinstance(pattern, Supergroup) else ""
    program = _program(pattern)
    finder = _Finder(op.graph, explain=True)
    for match, reason in finder.matches(pattern, op):
        if reason is not None:
            return Mismatch(name, op, len(match.ops), None, match.result, f"what {name} demands", reason)
    outputs = [value for value in op.graph.op_outputs(op) if value is not None]
    failures = [finder.engine.attempt(program, value).failure for value in outputs]
    best = max((failure for failure in failures if failure is not None), key=lambda f: f.score, default=None)
    if best is None:
        return Mismatch(name, op, 0, program.root.element, None, "an op with an output", op.label)
    return Mismatch(name, op, best.matched, best.element, best.value, best.expected, best.found)


class _Finder:
    """Turns solutions of the engine into matches."""

    def __init__(self, graph: Graph, explain: bool = False) -> None:
        self.graph = graph
        self.engine = Engine(graph, explain)
        self._positions: dict[Op, int] = {}

    def position(self, op: Op) -> int:
        """The place of ``op`` in the topological order."""
        if not self._positions:
            self._positions = {each: index for index, each in enumerate(self.graph.ops())}
        return self._positions[op]

    def candidates(self, patterns: Sequence[Pattern | Supergroup]) -> Iterator[tuple[int, Iterator[Match]]]:
        """For each op and each pattern that could end there: the rank of the pattern and its matches."""
        by_type: dict[tuple[str, str], list[int]] = {}
        for rank, pattern in enumerate(patterns):
            for pair in _program(pattern).roots:
                by_type.setdefault(pair, []).append(rank)
        for op in self.graph.ops():
            for rank in by_type.get((op.domain, op.op_type), ()):
                yield rank, self._valid(patterns[rank], op)

    def _valid(self, pattern: Pattern | Supergroup, op: Op) -> Iterator[Match]:
        return (match for match, reason in self.matches(pattern, op) if reason is None)

    def matches(self, pattern: Pattern | Supergroup, op: Op) -> Iterator[tuple[Match, str | None]]:
        """All distinct matches at ``op``, each with the reason why the supergroup's check rejects it."""
        program = _program(pattern)
        check = pattern.check if isinstance(pattern, Supergroup) else None
        seen: set[tuple[object, ...]] = set()
        for result, solution in self.engine.solutions(program, op):
            match = self._match(pattern, program, op, result, solution)
            key = (
                result,
                solution.ops,
                *match.captures.items(),
                *match.attributes.items(),
                *match.choices.items(),
            )
            if key not in seen:
                seen.add(key)
                yield match, check(match) if check is not None else None

    def _match(
        self, pattern: Pattern | Supergroup, program: Program, op: Op, result: Value, solution: Solution
    ) -> Match:
        held = solution.bindings
        captures, attributes = {}, {}
        for element, slot in program.slots.items():
            found = held[slot]
            if isinstance(element, Attribute) and isinstance(found, tuple):
                attributes[element.name] = found[0]
            elif element.name and isinstance(found, Value):
                captures[element.name] = found
        choices = {e.name: str(held[slot]) for e, slot in program.choices.items() if held[slot] is not None}
        for name in choices:
            captures.pop(name, None)
        ops = tuple(sorted(solution.ops, key=self.position))
        supergroup = pattern if isinstance(pattern, Supergroup) else None
        name = supergroup.name_of(choices) if supergroup else ""
        return Match(name, supergroup, self.graph, op, result, ops, captures, attributes, choices)


def _program(pattern: Pattern | Supergroup) -> Program:
    return program_of(pattern.pattern if isinstance(pattern, Supergroup) else pattern)
