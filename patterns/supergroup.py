"""Supergroups, which are named patterns, and their matches: sets of ops that count as one, or as a block."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Region, Value
from qc.ir.tensor_ref import TensorRef

from .pattern import Alternatives, Pattern
from .term import children_first

_KEY = r"\{(\w+)\}"

BLOCK = "block"
"""The kind of supergroups that devices run as several operators, with tensors of their own in between."""


@dataclass(frozen=True, eq=False)
class Supergroup:
    """A pattern with a name and a meaning.

    Attributes:
        name: the name of its matches; ``{key}`` stands for the taken option of the pattern's choice ``key``.
            An option whose label is empty has no part in the name.
        pattern: what it looks like.
        doc: one line for people.
        kind: what it is to a target: ``weighted``, ``elementwise``, ``normalization``, ``activation``,
            ``softmax``, ``chain`` (of a target file) or ``block``.
        inner: captured constants that need no quantizer (an epsilon). Constants that no capture names,
            and values made inside, never need one.
        check: a last condition on a match; returns what is wrong, or None.
    """

    name: str
    pattern: Pattern
    doc: str
    kind: str
    inner: frozenset[str] = field(default_factory=frozenset)
    check: Callable[[Match], str | None] | None = None

    @property
    def title(self) -> str:
        """The name with ``*`` for what only a match can tell."""
        return self.name_of({})

    @property
    def options(self) -> dict[str, tuple[str, ...]]:
        """What can stand for each part of the name that only a match can tell."""
        return _labels(self.pattern, re.findall(_KEY, self.name))

    @property
    def names(self) -> tuple[str, ...]:
        """All names that matches can have."""
        keys = re.findall(_KEY, self.name)
        if not keys:
            return (self.name,)
        root = self.pattern
        forms: list[tuple[dict[str, tuple[str, ...]], Pattern]] = [({}, root)]
        if isinstance(root, Alternatives) and root.name in keys:
            forms = [
                ({root.name: (label,)}, option)
                for label, option in zip(root.labels, root.options, strict=True)
            ]
        taken = (_labels(option, keys) | own for own, option in forms)
        combined = (
            dict(zip(each, labels, strict=True)) for each in taken for labels in product(*each.values())
        )
        return tuple(dict.fromkeys(self.name_of(choices) for choices in combined))

    def name_of(self, choices: Mapping[str, str]) -> str:
        """The name of a match that took these options, with ``*`` for those that are not there."""
        return re.sub(_KEY, lambda key: choices.get(key[1], "*"), self.name).strip("_")


@dataclass(frozen=True, eq=False)
class Match:
    """A pattern found in a graph.

    Attributes:
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

    @property
    def name(self) -> str:
        """The supergroup, with the options taken filled in; empty for a bare pattern."""
        return self.supergroup.name_of(self.choices) if self.supergroup else ""

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
        names = self.supergroup.inner if self.supergroup else ()
        parameters = {*self.captures.values()} - {self.captures.get(name) for name in names}
        found: dict[Value, None] = {}
        for op in self.ops:
            for value in op.inputs:
                if value is not None and value not in parameters and constant_data(value) is not None:
                    found[value] = None
            for value in op.outputs if op is not self.root else ():
                if value is not None and value not in self.results:
                    found[value] = None
        return tuple(found)

    def region(self) -> Region:
        """The match as a region of the IR."""
        return Region(self.name, self.graph, self.ops, dict(self.captures))

    def __str__(self) -> str:
        return f"{self.name or 'match'} ({len(self.ops)} ops ending in {self.root.label})"


def _labels(pattern: Pattern, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The labels of the choices of these names."""
    found: dict[str, dict[str, None]] = {key: {} for key in keys}
    for element in children_first([pattern]):
        if isinstance(element, Alternatives) and element.name in found:
            found[element.name].update(dict.fromkeys(element.labels))
    return {key: tuple(labels) for key, labels in found.items()}


def supergroup(
    kind: str, name: str = "", inner: Iterable[str] = (), check: Callable[[Match], str | None] | None = None
) -> Callable[[Callable[[], Pattern]], Callable[[], Supergroup]]:
    """Declares that a function builds the pattern of a supergroup, which is made when it is first asked for.

    The supergroup is called like the function, unless ``name`` is given, and told by the first line of its
    docstring.
    """

    def declare(build: Callable[[], Pattern]) -> Callable[[], Supergroup]:
        doc = (build.__doc__ or "").split("\n")[0].rstrip(".")
        return cache(lambda: Supergroup(name or build.__name__, build(), doc, kind, frozenset(inner), check))

    return declare


def pattern_of(pattern: Pattern | Supergroup) -> Pattern:
    """The pattern itself, or that of the supergroup."""
    return pattern.pattern if isinstance(pattern, Supergroup) else pattern
