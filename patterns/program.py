"""Patterns prepared for matching: what carries a binding, who sees it, what can compute a value."""

from __future__ import annotations

from functools import lru_cache

from qc.ir.errors import UsageError

from .pattern import (
    Absent,
    Alternatives,
    AnyValue,
    Attribute,
    AttributeTest,
    Constant,
    OpPattern,
    Output,
    Pattern,
)

Kind = tuple[str, str] | None
"""What a value is computed by: (domain, op type), NO_OP, or None for an input that is left out."""

NO_OP = ("", "")
_CONSTANT_KINDS = frozenset((NO_OP, ("", "Constant")))


class Node:
    """One element of a pattern, prepared.

    Attributes:
        element: the element.
        children: the prepared children.
        slot: where the matched value is remembered: for elements that are named or occur more than once.
        choice: where the label of the taken option is remembered.
        tests: the attributes to test, each with the slot of its variable.
        interface: the slots inside that are visible outside. Given what they hold, what this element
            matches depends on nothing else.
        kinds: what a matching value can be computed by.
        anything: whether it can be computed by anything.
        is_leaf: whether it has no parts: any value, a constant, or an input that is left out.
        is_transparent: whether it is nothing but its options.
    """

    __slots__ = (
        "anything",
        "children",
        "choice",
        "element",
        "interface",
        "is_leaf",
        "is_transparent",
        "kinds",
        "slot",
        "tests",
    )

    def __init__(self, element: Pattern) -> None:
        self.element = element
        self.children: tuple[Node, ...] = ()
        self.slot: int | None = None
        self.choice: int | None = None
        self.tests: tuple[tuple[str, AttributeTest, int | None], ...] = ()
        self.interface: tuple[int, ...] = ()
        self.kinds: frozenset[Kind] = frozenset()
        self.anything = False
        self.is_leaf = not isinstance(element, (OpPattern, Output, Alternatives))
        self.is_transparent = False

    def accepts(self, kind: Kind) -> bool:
        """Whether a value computed so can match at all."""
        return kind in self.kinds or (self.anything and kind is not None)


class Program:
    """A pattern with a slot for each thing that has to be remembered while it is matched.

    Attributes:
        root: the prepared pattern.
        width: the number of slots.
        slots: slot by element or attribute variable.
        choices: slot of the taken label by alternatives.
        roots: the (domain, op type) pairs that the result can be computed by.

    Raises:
        UsageError: the root accepts values that no op computes.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._elements = _elements(pattern)
        self._nodes = {element: Node(element) for element in self._elements}
        self.root = self._nodes[pattern]
        self.roots = root_types(pattern)
        self.slots: dict[Pattern | Attribute, int] = {}
        self.choices: dict[Pattern | Attribute, int] = {}
        for element in reversed(self._elements):
            self._nodes[element].children = tuple(self._nodes[child] for child in element.children)
        self._assign_slots()
        self.width = len(self.slots) + len(self.choices)
        known: dict[Pattern, tuple[frozenset[Kind], bool]] = {}
        for element, node in self._nodes.items():
            node.kinds, node.anything = _kinds(element, known)
            if element.children or node.tests:
                node.interface = self._interface(element)

    def _assign_slots(self) -> None:
        bottom_up = _children_first(self.root.element)
        parents = _parent_counts(self._elements)
        for element in reversed(bottom_up):
            for variable in _variables(element):
                self.slots.setdefault(variable, len(self.slots))
            if element.name or (parents.get(element, 0) > 1 and self._meets_again(element, bottom_up)):
                self.slots[element] = len(self.slots)
        labelled = [each for each in self._elements if isinstance(each, Alternatives) and each.labels]
        self.choices = {element: len(self.slots) + index for index, element in enumerate(labelled)}
        for element, node in self._nodes.items():
            node.slot = self.slots.get(element)
            node.choice = self.choices.get(element)
            bare = node.slot is None and node.choice is None
            node.is_transparent = isinstance(element, Alternatives) and bare
            if isinstance(element, OpPattern):
                node.tests = tuple((name, test, self._slot_of(test)) for name, test in element.attributes)

    def _meets_again(self, shared: Pattern, bottom_up: list[Pattern]) -> bool:
        """Whether one match can come to an element twice.

        Inputs of an op add up, of alternatives only one counts, and an element with a slot is entered
        only once however often it is met.
        """
        if isinstance(shared, Absent) or (isinstance(shared, Constant) and shared.number is not None):
            return False
        counts: dict[Pattern, int] = {}
        for element in bottom_up:
            below = [
                1 if child is shared else 0 if child in self.slots else counts[child]
                for child in element.children
            ]
            counts[element] = max(below, default=0) if isinstance(element, Alternatives) else sum(below)
            if element is shared:
                counts[element] = 1
        return counts[self.root.element] + sum(counts[each] for each in counts if each in self.slots) > 1

    def _slot_of(self, test: AttributeTest) -> int | None:
        return self.slots[test] if isinstance(test, Attribute) else None

    def _interface(self, element: Pattern) -> tuple[int, ...]:
        """The slots inside ``element`` that can also be filled on a way that does not pass it."""
        inside = self._slots_in(_elements(element)) - {self.slots.get(element, -1)}
        if element is self.root.element or not inside:
            return ()
        return tuple(sorted(inside & self._slots_in(_elements(self.root.element, skip=element))))

    def _slots_in(self, elements: list[Pattern]) -> set[int]:
        found = {self.slots[element] for element in elements if element in self.slots}
        return found | {self.slots[variable] for element in elements for variable in _variables(element)}


@lru_cache(maxsize=1024)
def program_of(pattern: Pattern) -> Program:
    """The program of a pattern, made once per pattern object."""
    return Program(pattern)


def root_types(pattern: Pattern) -> tuple[tuple[str, str], ...]:
    """The (domain, op type) pairs that can compute the result of ``pattern``."""
    if isinstance(pattern, OpPattern):
        return tuple((pattern.domain, op_type) for op_type in pattern.op_types)
    if isinstance(pattern, Output):
        return root_types(pattern.source)
    if isinstance(pattern, Alternatives):
        return tuple(dict.fromkeys(pair for option in pattern.options for pair in root_types(option)))
    raise UsageError(f"the root of a pattern must be an op, not {pattern!r}")


def _kinds(
    element: Pattern, known: dict[Pattern, tuple[frozenset[Kind], bool]]
) -> tuple[frozenset[Kind], bool]:
    """What a value that matches ``element`` can be computed by, and whether that can be anything."""
    if isinstance(element, (OpPattern, Output)):
        return frozenset(root_types(element)), False
    if isinstance(element, Absent):
        return frozenset((None,)), False
    if isinstance(element, Constant):
        return _CONSTANT_KINDS, False
    if isinstance(element, AnyValue):
        return frozenset(), True
    if element not in known:
        options = [_kinds(option, known) for option in element.children]
        kinds = frozenset(kind for option, _ in options for kind in option)
        known[element] = kinds, any(anything for _, anything in options)
    return known[element]


def _elements(root: Pattern, skip: Pattern | None = None) -> list[Pattern]:
    """All elements reachable from ``root`` (not through ``skip``), each once."""
    found: dict[Pattern, None] = {}
    pending = [root]
    while pending:
        element = pending.pop()
        if element is not skip and element not in found:
            found[element] = None
            pending.extend(reversed(element.children))
    return list(found)


def _children_first(root: Pattern) -> list[Pattern]:
    """All elements reachable from ``root``, each after its children."""
    found: dict[Pattern, None] = {}
    pending = [(root, False)]
    while pending:
        element, ready = pending.pop()
        if ready:
            found[element] = None
        elif element not in found:
            pending.append((element, True))
            pending.extend((child, False) for child in element.children)
    return list(found)


def _parent_counts(elements: list[Pattern]) -> dict[Pattern, int]:
    counts: dict[Pattern, int] = {}
    for element in elements:
        for child in element.children:
            counts[child] = counts.get(child, 0) + 1
    return counts


def _variables(element: Pattern) -> list[Attribute]:
    if not isinstance(element, OpPattern):
        return []
    return [test for _, test in element.attributes if isinstance(test, Attribute)]
