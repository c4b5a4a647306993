"""Reads how the text names values, ops and graphs, as :mod:`qc.ir.text.scope` says."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ..graph import Op, Value
from ..model import FunctionKey
from .parsed_scope import ParsedScope
from .scanner import Scanner
from .scope import function_path
from .words import NAME, named, worded

_VALUE = re.compile(rf"%{NAME.pattern}(?:#\d{{1,9}})?")
_NUMBER = re.compile(r"#\d{1,9}")


class Mention(NamedTuple):
    """The name of a value or the place of an op, and where in the text that was read."""

    name: str | int
    start: int


def bare_name(name: str) -> str:
    """The name that a value itself has, whose name in the text this is."""
    if name.startswith('%"'):
        return str(json.JSONDecoder().raw_decode(name, 1)[0])
    return name[1:].partition("#")[0]


class References:
    """Reads names.

    Args:
        scanner: where to read.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner

    def name(self) -> str:
        """The name of a value, as the text has it."""
        found = self._scanner.accept_pattern(_VALUE)
        if found is not None:
            return found
        start = self._scanner.position
        if not self._scanner.accept("%"):
            raise self._scanner.error("a value, such as %x", start)
        bare = named(self._scanner.string("the name of a value"))
        return f"%{bare}{self._scanner.accept_pattern(_NUMBER) or ''}"

    def value(self, scope: ParsedScope) -> Value:
        """A value that is known in a graph."""
        start, name = self._scanner.position, self.name()
        value = scope.find(name)
        if value is None:
            raise self._scanner.problem(f"nothing is named {name} here", start)
        return value

    def mention(self) -> Mention:
        """A value of a graph that is told behind it."""
        start = self._scanner.position
        return Mention(self.name(), start)

    def op_mention(self) -> Mention:
        """An op, by its first result or by its place."""
        start = self._scanner.position
        is_place = self._scanner.accept_word("op")
        return Mention(self._scanner.count("the place of an op") if is_place else self.name(), start)

    def own_value(self, scope: ParsedScope, mention: Mention) -> Value:
        """A value that a graph has already."""
        value = scope.values.get(str(mention.name))
        if value is None:
            raise self._scanner.problem(f"nothing is named {mention.name} in this graph", mention.start)
        return value

    def op(self, scope: ParsedScope, mention: Mention) -> Op:
        """An op of a graph."""
        name = mention.name
        place = name if isinstance(name, int) else scope.producer(name)
        if place is None or place >= len(scope.ops):
            raise self._scanner.problem(f"there is no op {name} in this graph", mention.start)
        return scope.ops[place].op

    def function_key(self) -> FunctionKey:
        """Domain, name and overload of a local function."""
        domain = self._scanner.word("the domain of a function")
        self._scanner.expect("::")
        return self._function_of(domain)

    def _function_of(self, domain: str) -> FunctionKey:
        name = self._scanner.word("the name of a function")
        return domain, name, self._scanner.word("an overload") if self._scanner.accept("#") else ""

    def path(self) -> str:
        """Where something is: a nested graph or a function; empty for the main graph."""
        scanner, path = self._scanner, ""
        while scanner.accept_word("in"):
            word = scanner.word("a nested graph or a function")
            if scanner.accept("::"):
                return f"{path} in {function_path(*self._function_of(word))}"
            index = f":{scanner.count('an index')}" if scanner.accept(":") else ""
            scanner.expect_word("of")
            owner = self.op_mention().name
            place = owner if isinstance(owner, str) else f"op {owner}"
            path += f" in {worded(word)}{index} of {place}"
        return path
