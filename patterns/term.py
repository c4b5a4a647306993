"""Canonical terms: patterns without names and sharing, so that equal parts of many patterns are one object.

A term tells what can compute a value as far as one can say without looking at two places of a graph at
once. The many supergroups that begin with the same ops have these in common.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import TypeVar
from weakref import WeakValueDictionary

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
    Results,
)

T = TypeVar("T", "Pattern", "Term")

Kind = tuple[str, str] | None
"""What a value is computed by: (domain, op type), NO_OP, or None for an input that is left out."""

NO_OP = ("", "")
_CONSTANT_KINDS = frozenset((NO_OP, ("", "Constant")))

Test = tuple[str, AttributeTest | Callable[[object], bool]]
"""An attribute and what it must be: a value, or a condition that it must meet."""


class Term:
    """One element of a pattern without its name. Equal ones are one object.

    Attributes:
        element: an element with this term.
        children: the terms of its parts, of equal alternatives one.
        kinds: what a matching value can be computed by.
        anything: whether it can be computed by anything.
        tests: what its attributes must be, wherever the op stands.
        size: the most ops that it can cover, shared ones counted wherever they occur.
        least: the fewest ops that it can cover.
    """

    __slots__ = ("__weakref__", "anything", "children", "element", "kinds", "least", "size", "tests")

    def __init__(self, element: Pattern, children: tuple[Term, ...], tests: tuple[Test, ...]) -> None:
        self.element = element
        self.children = children
        self.tests = tests
        self.kinds = _kinds(element, children)
        is_choice = isinstance(element, Alternatives)
        self.anything: bool = isinstance(element, AnyValue) or (
            is_choice and any(child.anything for child in children)
        )
        own = int(isinstance(element, OpPattern))
        sizes, leasts = [child.size for child in children], [child.least for child in children]
        self.size: int = max(sizes) if is_choice else own + sum(sizes)
        self.least: int = min(leasts) if is_choice else own + sum(leasts)

    def accepts(self, kind: Kind) -> bool:
        """Whether a value computed so can match at all."""
        return kind in self.kinds or (self.anything and kind is not None)


_known: WeakValueDictionary[tuple[object, ...], Term] = WeakValueDictionary()


@lru_cache(maxsize=1024)
def terms_of(pattern: Pattern) -> Mapping[Pattern, Term]:
    """The terms of all elements of a pattern, the parts first; found once per pattern object."""
    terms: dict[Pattern, Term] = {}
    for element in children_first([pattern]):
        children = tuple([terms[child] for child in element.children])
        if isinstance(element, Alternatives):
            children = tuple(dict.fromkeys(children))
        tests = _tests(element)
        key = (*_content(element), children, tuple([(name, type(test), test) for name, test in tests]))
        found = _known.get(key)
        if found is None:
            found = _known[key] = Term(element, children, tests)
        terms[element] = found
    return terms


def term_of(pattern: Pattern) -> Term:
    """The term of a pattern."""
    return terms_of(pattern)[pattern]


def children_first(roots: Iterable[T], known: Container[T] = ()) -> list[T]:
    """All that these patterns or terms consist of, each once and after its parts; nothing that is known."""
    found: dict[T, None] = {}
    pending = [(root, False) for root in reversed(list(roots))]
    while pending:
        item, ready = pending.pop()
        if ready:
            found[item] = None
        elif item not in found and item not in known:
            pending.append((item, True))
            pending.extend([(child, False) for child in item.children])
    return list(found)


def _content(element: Pattern) -> tuple[object, ...]:
    if isinstance(element, Constant):
        return (Constant, element.number, element.tolerance, element.where)
    if isinstance(element, OpPattern):
        return (OpPattern, element.domain, element.op_types, element.open_ended)
    if isinstance(element, Output):
        return (Output, element.index)
    return (type(element),)


def _tests(element: Pattern) -> tuple[Test, ...]:
    if not isinstance(element, OpPattern):
        return ()
    return tuple(
        (name, (test.where or _is_known) if isinstance(test, Attribute) else test)
        for name, test in element.attributes
    )


def _is_known(found: object) -> bool:
    return True


def _kinds(element: Pattern, children: tuple[Term, ...]) -> frozenset[Kind]:
    if isinstance(element, OpPattern):
        return frozenset((element.domain, op_type) for op_type in element.op_types)
    if isinstance(element, (Output, Results)):
        return children[0].kinds
    if isinstance(element, Absent):
        return frozenset((None,))
    if isinstance(element, Constant):
        return _CONSTANT_KINDS
    return frozenset(kind for child in children for kind in child.kinds)
