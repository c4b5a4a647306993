"""Matches, and the three ways to ask for them: at one op, all at one op, all in a graph."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from qc.ir.graph import Graph, Op, Value
from qc.ir.region import Region

from .attempt import Solution
from .attributes import constant_data
from .engine import Engine
from .lookahead import Signature
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
    finder = _Finder(op.graph)
    for result in op.graph.op_outputs(op):
        if result is not None:
            yield from finder.valid(pattern, result)


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
    finder = _Finder(graph)
    queue: list[tuple[int, int, int, Match, int]] = []
    for place, (rank, result) in enumerate(finder.candidates(patterns)):
        _push(queue, finder, patterns, rank, place, result, 0)
    claimed = set(taken)
    found: list[Match] = []
    while queue:
        _, rank, place, match, tried = heapq.heappop(queue)
        if claimed.isdisjoint(match.ops):
            claimed.update(match.ops)
            found.append(match)
        else:
            _push(queue, finder, patterns, rank, place, match.result, tried)
    return sorted(found, key=lambda match: finder.position(match.root))


def _push(
    queue: list[tuple[int, int, int, Match, int]],
    finder: _Finder,
    patterns: Sequence[Pattern | Supergroup],
    rank: int,
    place: int,
    result: Value,
    tried: int,
) -> None:
    """Queues the match with this result that comes after the ``tried`` first ones, if there is one."""
    match = next(islice(finder.valid(patterns[rank], result), tried, None), None)
    finder.engine.forget()
    if match is not None:
        heapq.heappush(queue, (-len(match.ops), rank, place, match, tried + 1))


def _explain(pattern: Pattern | Supergroup, op: Op) -> Mismatch:
    name = pattern.title if isinstance(pattern, Supergroup) else ""
    program = _program(pattern)
    finder = _Finder(op.graph, explain=True)
    failures = []
    for result in op.graph.op_outputs(op):
        if result is None:
            continue
        for match, reason in finder.matches(pattern, result):
            if reason is not None:
                return Mismatch(name, op, len(match.ops), None, result, f"what {name} demands", reason)
        failures.append(finder.engine.attempt(program, result).failure)
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

    def candidates(self, patterns: Sequence[Pattern | Supergroup]) -> Iterator[tuple[int, Value]]:
        """The patterns, by rank, and the values that they could have as results."""
        roots = [_program(pattern).root for pattern in patterns]
        look = self.engine.look
        promising: dict[Signature, list[int]] = {}
        for result in (value for op in self.graph.ops() for value in self.graph.op_outputs(op) if value):
            signature = look.signature(result)
            if signature not in promising:
                promising[signature] = [r for r, root in enumerate(roots) if look.plausible(root, signature)]
            for rank in promising[signature]:
                yield rank, result

    def valid(self, pattern: Pattern | Supergroup, result: Value) -> Iterator[Match]:
        """All distinct matches with this result."""
        return (match for match, reason in self.matches(pattern, result) if reason is None)

    def matches(self, pattern: Pattern | Supergroup, result: Value) -> Iterator[tuple[Match, str | None]]:
        """All distinct solutions with this result, each with the reason why the supergroup rejects it."""
        program = _program(pattern)
        check = pattern.check if isinstance(pattern, Supergroup) else None
        seen: set[tuple[object, ...]] = set()
        for solution in self.engine.solutions(program, result):
            match, clash = self._match(pattern, program, result, solution)
            meaning = (match.captures, match.attributes, match.choices)
            key = (solution.ops, clash, *(tuple(each.items()) for each in meaning))
            if key not in seen:
                seen.add(key)
                yield match, clash or (check(match) if check is not None else None)

    def _match(
        self, pattern: Pattern | Supergroup, program: Program, result: Value, solution: Solution
    ) -> tuple[Match, str | None]:
        """A solution as a match; with the reason if a name would stand for two things."""
        meaning: tuple[dict[str, Value], dict[str, object], dict[str, str]] = ({}, {}, {})
        captures, attributes, choices = meaning
        clash = None
        for names, name, held in _named(program, solution, meaning):
            if names.setdefault(name, held) != held:
                clash = f"two things named '{name}': {names[name]} and {held}"
        ops = tuple(sorted(solution.ops, key=self.position))
        supergroup = pattern if isinstance(pattern, Supergroup) else None
        title = supergroup.name_of(choices) if supergroup else ""
        match = Match(title, supergroup, self.graph, ops[-1], result, ops, captures, attributes, choices)
        return match, clash


def _named(
    program: Program, solution: Solution, meaning: tuple[dict[str, Any], ...]
) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """What the slots of a solution hold under which names: captured values, attributes, choices."""
    captures, attributes, choices = meaning
    for element, slot in program.slots.items():
        found = solution.bindings[slot]
        if isinstance(element, Attribute):
            if isinstance(found, tuple):
                yield attributes, element.name, found[0]
        elif element.name and isinstance(found, Value) and element not in program.choices:
            yield captures, element.name, found
    for element, slot in program.choices.items():
        if solution.bindings[slot] is not None:
            yield choices, element.name, solution.bindings[slot]


def _program(pattern: Pattern | Supergroup) -> Program:
    return program_of(pattern.pattern if isinstance(pattern, Supergroup) else pattern)
