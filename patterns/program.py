"""Patterns prepared for matching: what carries a binding, and who sees it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import networkx as nx

from qc.ir.errors import UsageError
from qc.ir.graph import Value

from .pattern import Alternatives, Attribute, AttributeTest, OpPattern, Output, Pattern, Results, is_predicate
from .results import check_connected
from .shape import Shape, children_first, shape_of


class Node:
    """One element of a pattern, prepared.

    Attributes:
        element: the element.
        shape: what it has in common with equal elements of other patterns.
        children: the prepared children.
        slot: where the matched value is remembered: for elements that are named or occur more than once.
        choice: where the label of the taken option is remembered.
        tests: the attributes to test, each with the slot of its variable.
        interface: the slots inside that are visible outside. Given what they hold, what this element
            matches depends on nothing else.
        is_leaf: whether it has no parts: any value, a constant, or an input that is left out.
        is_transparent: whether it is nothing but its options.
    """

    __slots__ = (
        "children",
        "choice",
        "element",
        "interface",
        "is_leaf",
        "is_transparent",
        "shape",
        "slot",
        "tests",
    )

    def __init__(self, element: Pattern, shape: Shape) -> None:
        self.element = element
        self.shape = shape
        self.children: tuple[Node, ...] = ()
        self.slot: int | None = None
        self.choice: int | None = None
        self.tests: tuple[tuple[str, AttributeTest, int | None], ...] = ()
        self.interface: tuple[int, ...] = ()
        self.is_leaf = not element.children and not isinstance(element, OpPattern)
        self.is_transparent = False


class Program:
    """A pattern with a slot for each thing that has to be remembered while it is matched.

    Attributes:
        root: the prepared pattern.
        width: the number of slots.
        slots: slot by element or attribute variable.
        choices: slot of the taken label by alternatives.
        others: the further results, after the one at which matching starts.
        further_size: the most ops that only further results need.

    Raises:
        UsageError: the root accepts values that no op computes, or shares nothing with a further result.
    """

    def __init__(self, pattern: Pattern) -> None:
        _check_roots(pattern)
        bottom_up = children_first([pattern])
        shapes: dict[Pattern, Shape] = {}
        self._nodes: dict[Pattern, Node] = {}
        for element in bottom_up:
            shapes[element] = shape_of(element, shapes)
            self._nodes[element] = Node(element, shapes[element])
            self._nodes[element].children = tuple(self._nodes[child] for child in element.children)
        self.root = self._nodes[pattern]
        self.others = self.root.children[1:] if isinstance(pattern, Results) else ()
        inside = children_first([self.root.children[0].element] if self.others else [])
        self.further_size = sum(node.shape.size for node in self.others if node.element not in inside)
        self.slots: dict[Pattern | Attribute, int] = {}
        self.choices: dict[Pattern | Attribute, int] = {}
        self._assign_slots(bottom_up)
        self.width = len(self.slots) + len(self.choices)
        self._assign_interfaces(bottom_up)
        if isinstance(pattern, Results):
            check_connected(pattern)

    def shape_of(self, element: Pattern) -> Shape:
        """The shape of an element of the pattern."""
        return self._nodes[element].shape

    def further_results(self, bindings: tuple[object, ...], end: int | None = None) -> list[Value]:
        """What the further results have matched, of the first ``end`` of them (None: of all)."""
        slots = [node.slot for node in self.others[:end] if node.slot is not None]
        return [content for slot in slots if isinstance(content := bindings[slot], Value)]

    def taken_options(self, bindings: tuple[object, ...]) -> tuple[tuple[str, str], ...]:
        """The names of the choices with the options taken."""
        held = ((element, bindings[slot]) for element, slot in self.choices.items())
        return tuple((element.name, label) for element, label in held if isinstance(label, str))

    def _assign_slots(self, bottom_up: list[Pattern]) -> None:
        results = self.root.element.children if self.others else ()
        places = {element: place for place, element in enumerate(bottom_up)}
        parents = _parents(bottom_up)
        for element in reversed(bottom_up):
            for variable in _variables(element):
                self.slots.setdefault(variable, len(self.slots))
            is_shared = len(parents[element]) > 1 and not is_predicate(element)
            above = sorted(_above(element, parents), key=places.__getitem__) if is_shared else []
            is_met_again = is_shared and self._meets_again(element, above)
            if element.name or is_met_again or element in results:
                self.slots[element] = len(self.slots)
        labelled = [each for each in reversed(bottom_up) if isinstance(each, Alternatives) and each.labels]
        self.choices = {element: len(self.slots) + index for index, element in enumerate(labelled)}
        for element, node in self._nodes.items():
            node.slot = self.slots.get(element)
            node.choice = self.choices.get(element)
            bare = node.slot is None and node.choice is None
            node.is_transparent = isinstance(element, Alternatives) and bare
            if isinstance(element, OpPattern):
                node.tests = tuple((name, test, self._slot_of(test)) for name, test in element.attributes)

    def _meets_again(self, shared: Pattern, above: list[Pattern]) -> bool:
        """Whether one match can come to an element twice.

        Inputs of an op add up, of alternatives only one counts, and an element with a slot is entered
        only once however often it is met. ``above`` is all that it is a part of, each after its parts.
        """
        counts = {shared: 1}
        for element in above:
            below = [0 if child in self.slots else counts.get(child, 0) for child in element.children]
            counts[element] = max(below) if isinstance(element, Alternatives) else sum(below)
        return counts[self.root.element] + sum(counts[each] for each in counts if each in self.slots) > 1

    def _slot_of(self, test: AttributeTest) -> int | None:
        return self.slots[test] if isinstance(test, Attribute) else None

    def _assign_interfaces(self, bottom_up: list[Pattern]) -> None:
        """Finds, for every element, the slots inside that can also be filled on a way that does not pass it.

        Those are the slots whose element it does not dominate in the pattern seen as a flow graph.
        """
        parts = nx.DiGraph((each, part) for each in bottom_up for part in (*each.children, *_variables(each)))
        parts.add_node(self.root.element)
        nearest = nx.immediate_dominators(parts, self.root.element)
        inside: dict[Pattern | Attribute, set[int]] = {}
        dominated: dict[Pattern | Attribute, set[int]] = {part: set() for part in parts}
        for part, slot in self.slots.items():
            while part is not self.root.element:
                dominated[part].add(slot)
                part = nearest[part]
        for element in bottom_up:
            held = {self.slots[part] for part in (element, *_variables(element)) if part in self.slots}
            inside[element] = held.union(*(inside[child] for child in element.children))
            if element is not self.root.element:
                self._nodes[element].interface = tuple(sorted(inside[element] - dominated[element]))


@lru_cache(maxsize=1024)
def program_of(pattern: Pattern) -> Program:
    """The program of a pattern, made once per pattern object."""
    return Program(pattern)


def _check_roots(pattern: Pattern) -> None:
    """Raises UsageError unless every result of the pattern is computed by an op."""
    pending = list(pattern.children) if isinstance(pattern, Results) else [pattern]
    while pending:
        element = pending.pop()
        if isinstance(element, Alternatives):
            pending.extend(element.options)
        elif not isinstance(element, (OpPattern, Output)):
            raise UsageError(f"the root of a pattern must be an op, not {element!r}")


def _parents(elements: list[Pattern]) -> dict[Pattern, list[Pattern]]:
    """What each element is a part of, as often as it is one."""
    parents: dict[Pattern, list[Pattern]] = {element: [] for element in elements}
    for element in elements:
        for child in element.children:
            parents[child].append(element)
    return parents


def _above(element: Pattern, parents: Mapping[Pattern, list[Pattern]]) -> set[Pattern]:
    """All that an element is a part of, be it of a part."""
    found: set[Pattern] = set()
    pending = [element]
    while pending:
        new = [parent for parent in parents[pending.pop()] if parent not in found]
        found.update(new)
        pending += new
    return found


def _variables(element: Pattern) -> list[Attribute]:
    if not isinstance(element, OpPattern):
        return []
    return [test for _, test in element.attributes if isinstance(test, Attribute)]
