"""Compiled patterns: what carries a binding, and who sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from qc.ir.errors import UsageError
from qc.ir.graph import Value

from .pattern import Alternatives, Attribute, AttributeTest, OpPattern, Output, Pattern, Results
from .results import check_connected
from .term import Term, terms_of

Bindings = tuple[object, ...]
"""What each slot holds: None, a Value, ABSENT, a label, or a one-element tuple around an attribute."""

Choices = tuple[tuple[str, str], ...]
"""Names of choices with the labels of the options taken."""


class PatternNode:
    """One element of a pattern, prepared.

    Attributes:
        element: the element.
        term: what it has in common with equal elements of other patterns.
        children: the prepared children.
        slot: where the matched value is remembered: for elements that are named or occur more than once.
        choice: where the label of the taken option is remembered.
        tests: the attributes to test, each with the slot of its variable.
        interface: the slots of its parts. Given what they hold already, what this element matches depends
            on nothing else.
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
        "slot",
        "term",
        "tests",
    )

    def __init__(self, element: Pattern, term: Term, children: tuple[PatternNode, ...]) -> None:
        self.element = element
        self.term = term
        self.children = children
        self.slot: int | None = None
        self.choice: int | None = None
        self.tests: tuple[tuple[str, AttributeTest, int | None], ...] = ()
        self.interface: tuple[int, ...] = ()
        self.is_leaf = not children and not isinstance(element, OpPattern)
        self.is_transparent = False


class CompiledPattern:
    """A pattern with a slot for each thing that has to be remembered while it is matched.

    Attributes:
        root: the prepared pattern.
        width: the number of slots.
        slots: slot by element or attribute variable.
        choices: slot of the taken label by alternatives.
        others: the further results, after the one at which matching starts.
    """

    def __init__(self, pattern: Pattern) -> None:
        nodes: dict[Pattern, PatternNode] = {}
        for element, term in terms_of(pattern).items():
            nodes[element] = PatternNode(element, term, tuple([nodes[child] for child in element.children]))
        self.root = nodes[pattern]
        self.others = self.root.children[1:] if isinstance(pattern, Results) else ()
        self.slots: dict[Pattern | Attribute, int] = {}
        bottom_up = list(nodes)
        self._assign_slots(bottom_up)
        labelled = [each for each in reversed(bottom_up) if isinstance(each, Alternatives) and each.labels]
        self.choices: dict[Pattern, int] = {
            element: len(self.slots) + index for index, element in enumerate(labelled)
        }
        self.width = len(self.slots) + len(self.choices)
        for element, node in nodes.items():
            node.slot = self.slots.get(element)
            node.choice = self.choices.get(element)
            bare = node.slot is None and node.choice is None
            node.is_transparent = isinstance(element, Alternatives) and bare
            if isinstance(element, OpPattern):
                node.tests = tuple((name, test, self._slot_of(test)) for name, test in element.attributes)
        self._assign_interfaces(nodes)

    def further_results(self, bindings: Bindings, end: int | None = None) -> list[Value]:
        """What the further results have matched, of the first ``end`` of them (None: of all)."""
        slots = [node.slot for node in self.others[:end] if node.slot is not None]
        return [content for slot in slots if isinstance(content := bindings[slot], Value)]

    def taken_options(self, bindings: Bindings) -> Choices:
        """The names of the choices with the options taken."""
        held = ((element, bindings[slot]) for element, slot in self.choices.items())
        return tuple((element.name, label) for element, label in held if isinstance(label, str))

    def _assign_slots(self, bottom_up: list[Pattern]) -> None:
        results = self.root.element.children if self.others else ()
        uses = Counter(child for element in bottom_up for child in element.children)
        for place, element in reversed(list(enumerate(bottom_up))):
            for variable in element.variables:
                self.slots.setdefault(variable, len(self.slots))
            is_shared = uses[element] > 1 and not element.is_predicate
            is_met_again = is_shared and self._meets_again(element, bottom_up[place + 1 :])
            if element.name or is_met_again or element in results:
                self.slots[element] = len(self.slots)

    def _meets_again(self, shared: Pattern, above: Sequence[Pattern]) -> bool:
        """Whether one match can come to an element twice.

        Inputs of an op add up, of alternatives only one counts, and an element with a slot is entered
        only once however often it is met. ``above`` has all that it is a part of, each after its parts.
        """
        counts = {shared: 1}
        for element in above:
            below = [counts[each] for each in element.children if each in counts and each not in self.slots]
            if below:
                counts[element] = max(below) if isinstance(element, Alternatives) else sum(below)
        ends = [count for element, count in counts.items() if element in self.slots]
        return counts.get(self.root.element, 0) + sum(ends) > 1

    def _slot_of(self, test: AttributeTest) -> int | None:
        return self.slots[test] if isinstance(test, Attribute) else None

    def _assign_interfaces(self, nodes: dict[Pattern, PatternNode]) -> None:
        """Finds the slots inside of every element; those that only it can fill are empty when it starts."""
        inside: dict[Pattern, set[int]] = {}
        for element, node in nodes.items():
            parts = {self.slots[part] for part in element.parts if part in self.slots}
            inside[element] = parts.union(*(inside[child] for child in element.children))
            node.interface = tuple(sorted(inside[element]))


class Form:
    """A whole pattern, or an option of the choice at its root.

    Such options are matched like patterns of their own: of several that fit the largest counts, and one that
    fits nowhere is never compiled.

    Attributes:
        term: its canonical term.
        choices: the option that it is.
    """

    def __init__(self, pattern: Pattern, term: Term, choices: Choices = ()) -> None:
        self.term = term
        self.choices = choices
        self._pattern = pattern

    @cached_property
    def compiled(self) -> CompiledPattern:
        """The pattern as the search wants it."""
        return CompiledPattern(self._pattern)


@lru_cache(maxsize=1024)
def forms_of(pattern: Pattern) -> tuple[Form, ...]:
    """The forms of a pattern, made once per pattern object.

    Raises:
        UsageError: the root accepts values that no op computes, or shares nothing with a further result.
    """
    _check_roots(pattern)
    if isinstance(pattern, Results):
        check_connected(pattern)
    terms = terms_of(pattern)
    if isinstance(pattern, Alternatives) and pattern.labels:
        options = zip(pattern.labels, pattern.options, strict=True)
        return tuple(Form(option, terms[option], ((pattern.name, label),)) for label, option in options)
    return (Form(pattern, terms[pattern]),)


def _check_roots(pattern: Pattern) -> None:
    """Raises UsageError unless every result of the pattern is computed by an op."""
    pending = list(pattern.children) if isinstance(pattern, Results) else [pattern]
    while pending:
        element = pending.pop()
        if isinstance(element, Alternatives):
            pending.extend(element.options)
        elif not isinstance(element, (OpPattern, Output)):
            raise UsageError(f"the root of a pattern must be an op, not {element!r}")
