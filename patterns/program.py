"""What the matcher needs to know about a pattern beforehand: which elements carry a binding, and who sees it."""

from __future__ import annotations

from functools import lru_cache

from qc.ir.errors import UsageError

from .pattern import Absent, Alternatives, Attribute, Constant, OpPattern, Output, Pattern


class Program:
    """A pattern with a slot for each thing that has to be remembered while it is matched.

    Slots belong to elements that are named or occur more than once, to attribute variables, and to
    alternatives with labels. Numbers need none, because they are predicates.

    Attributes:
        root: the pattern.
        width: the number of slots.
        slots: slot by element (or attribute variable) identity.
        choices: slot for the taken label by alternatives.
        interface: for an element, the slots inside it that are visible outside: given their bindings,
            what the element matches depends on nothing else.
        roots: the (domain, op type) pairs that the result can be computed by.

    Raises:
        UsageError: the root accepts values that no op computes.
    """

    def __init__(self, root: Pattern) -> None:
        self.root = root
        self.elements = _elements(root)
        self.slots: dict[Pattern | Attribute, int] = {}
        self.choices: dict[Pattern, int] = {}
        self._assign_slots()
        self.width = len(self.slots) + len(self.choices)
        self.interface = {element: self._interface(element) for element in self.elements if element.children}
        self.roots = root_types(root)

    def _assign_slots(self) -> None:
        occurrences: dict[Pattern | Attribute, int] = {}
        for element in self.elements:
            for child in element.children:
                occurrences[child] = occurrences.get(child, 0) + 1
            for variable in _variables(element):
                occurrences[variable] = occurrences.get(variable, 0) + 1
        for element in self.elements:
            for variable in _variables(element):
                self.slots.setdefault(variable, len(self.slots))
            if element.name or (occurrences.get(element, 0) > 1 and _can_bind(element)):
                self.slots[element] = len(self.slots)
        labelled = [e for e in self.elements if isinstance(e, Alternatives) and e.labels]
        self.choices = {element: len(self.slots) + index for index, element in enumerate(labelled)}

    def _interface(self, element: Pattern) -> tuple[int, ...]:
        if element is self.root:
            return ()
        outside = _elements(self.root, skip=element)
        visible = {self.slots[e] for e in outside if e in self.slots}
        visible.update(self.slots[v] for e in outside for v in _variables(e))
        inside = {self.slots[e] for e in _elements(element)[1:] if e in self.slots}
        inside.update(self.slots[v] for e in _elements(element) for v in _variables(e))
        return tuple(sorted(visible & inside))


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


def _elements(root: Pattern, skip: Pattern | None = None) -> list[Pattern]:
    """All elements reachable from ``root`` (not through ``skip``), each once, parents first."""
    found: dict[Pattern, None] = {}
    pending = [root]
    while pending:
        element = pending.pop()
        if element is skip or element in found:
            continue
        found[element] = None
        pending.extend(reversed(element.children))
    return list(found)


def _variables(element: Pattern) -> list[Attribute]:
    if not isinstance(element, OpPattern):
        return []
    return [test for _, test in element.attributes if isinstance(test, Attribute)]


def _can_bind(element: Pattern) -> bool:
    if isinstance(element, Constant):
        return element.number is None
    return not isinstance(element, Absent)
