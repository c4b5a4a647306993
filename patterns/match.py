"""Matches, and how to ask for them at one op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Value
from qc.ir.region import Region
from qc.ir.tensor_ref import TensorRef

from .attempt import Solution
from .explain import mismatch
from .lookahead import View
from .mismatch import Failure, Mismatch, Reason
from .pattern import Attribute, Pattern
from .program import Program, program_of
from .search import Search
from .supergroup import Supergroup, pattern_of


@dataclass(frozen=True, eq=False)
class Match:
    """A pattern found in a graph.

    Attributes:
        name: the supergroup, with the options taken filled in; empty for a bare pattern.
        supergroup: the supergroup; None for a bare pattern.
        graph: where it was found.
        root: the op that computes the result.
        results: the values that leave the match: the result, then the further ones that the pattern names.
        ops: the matched ops in topological order; the last one is ``root`` if there is one result. Constant
            ops are not among them.
        captures: values by the names that the pattern gave them.
        attributes: normalized attributes by the names of the pattern's attribute variables.
        choices: the options taken, by the names of the pattern's choices.
    """

    name: str
    supergroup: Supergroup | None
    graph: Graph
    root: Op
    results: tuple[Value, ...]
    ops: tuple[Op, ...]
    captures: Mapping[str, Value]
    attributes: Mapping[str, object]
    choices: Mapping[str, str]

    def __getitem__(self, name: str) -> Value:
        return self.captures[name]

    def constant(self, name: str) -> TensorRef | None:
        """The data of a captured constant; None if nothing was captured so, or it is no constant."""
        return constant_data(self.captures[name]) if name in self.captures else None

    @property
    def result(self) -> Value:
        """The (main) result."""
        return self.results[0]

    @property
    def inner(self) -> tuple[Value, ...]:
        """The values that need no quantizer: made inside (except results), or constants of the formula."""
        parameters = set(self.captures.values()) - self._inner_captures()
        found: dict[Value, None] = {}
        for op in self.ops:
            for value in self.graph.op_inputs(op):
                if value is not None and value not in parameters and constant_data(value) is not None:
                    found[value] = None
            for value in self.graph.op_outputs(op) if op is not self.root else ():
                if value is not None and value not in self.results:
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
    finder = Finder(View(op.graph))
    failures: list[Failure] = []
    for result in op.graph.op_outputs(op):
        if result is not None:
            for match, refusal in finder.matches(pattern, result, failures):
                if refusal is None:
                    return match
    return mismatch(pattern, op, failures, finder.view)


def matches_at(pattern: Pattern | Supergroup, op: Op) -> Iterator[Match]:
    """All distinct matches (by ops, captures, attributes and choices) whose result is computed by ``op``."""
    finder = Finder(View(op.graph))
    for result in op.graph.op_outputs(op):
        if result is not None:
            yield from finder.valid(pattern, result)


class Finder:
    """Turns what a search finds into matches.

    Args:
        view: the graph.
    """

    def __init__(self, view: View) -> None:
        self.view = view

    def valid(self, pattern: Pattern | Supergroup, result: Value) -> Iterator[Match]:
        """All distinct matches with this result."""
        return (match for match, refusal in self.matches(pattern, result) if refusal is None)

    def failure(self, pattern: Pattern | Supergroup, result: Value) -> Failure | None:
        """Why there is no match with this result: the failure that came nearest. None if there is one."""
        failures: list[Failure] = []
        if any(refusal is None for _, refusal in self.matches(pattern, result, failures)):
            return None
        return max(failures, key=lambda failure: failure.score, default=None)

    def matches(
        self, pattern: Pattern | Supergroup, result: Value, failures: list[Failure] | None = None
    ) -> Iterator[tuple[Match, str | None]]:
        """All distinct solutions with this result, each with the reason why the supergroup rejects it.

        Args:
            pattern: the pattern.
            result: its (main) result.
            failures: gets the rejected solutions and, at the end, the best failure of the search.
        """
        program = program_of(pattern_of(pattern))
        check = pattern.check if isinstance(pattern, Supergroup) else None
        seen: set[tuple[object, ...]] = set()
        search = Search(self.view, program, result)
        for solution in search:
            match, clash = self._match(pattern, program, result, solution)
            meaning = (match.captures, match.attributes, match.choices)
            key = (solution.ops, match.results, clash, *(tuple(each.items()) for each in meaning))
            if key not in seen:
                seen.add(key)
                refusal = clash or (check(match) if check is not None else None)
                if failures is not None and refusal is not None:
                    element = program.root.element
                    choices = tuple(match.choices.items())
                    rejected = (solution.ops, Reason.CHECK, element, result, (refusal,))
                    failures.append(Failure(*rejected, choices=choices))
                yield match, refusal
        if failures is not None and search.attempt.failure is not None:
            failures.append(search.attempt.failure)

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
        ops = tuple(sorted(solution.ops, key=self.view.positions.__getitem__))
        root = self.view.producer(result)
        assert root is not None
        supergroup = pattern if isinstance(pattern, Supergroup) else None
        title = supergroup.name_of(choices) if supergroup else ""
        results = (result, *program.further_results(solution.bindings))
        graph = self.view.graph
        return Match(title, supergroup, graph, root, results, ops, captures, attributes, choices), clash


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
