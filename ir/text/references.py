"""Reads how the text names values, ops and graphs, as :mod:`qc.ir.text.scope` says."""

from __future__ import annotations

import re

from ..graph import Value
from ..model import FunctionKey
from .parsed_scope import ParsedScope
from .scanner import Scanner
from .scope import function_path
from .words import NAME, named, worded

_VALUE = re.compile(rf"%{NAME.pattern}(?:#\d{{1,9}})?")
_NUMBER = re.compile(r"#\d{1,9}")


class References:
    """Reads names.

    Args:
        scanner: where to read.
    """

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._quoted: dict[str, str] = {}

    def name(self) -> str:
        """The name of a value, as the text has it."""
        found = self._scanner.accept_pattern(_VALUE)
        if found is not None:
            return found
        start = self._scanner.position
        if not self._scanner.accept("%"):
            raise self._scanner.error("a value, such as %x", start)
        bare = self._scanner.string("the name of a value")
        name = f"%{named(bare)}{self._scanner.accept_pattern(_NUMBER) or ''}"
        self._quoted[name] = bare
        return name

    def bare(self, name: str) -> str:
        """The name that the value itself has."""
        return self._quoted.get(name) or name[1:].partition("#")[0]

    def value(self, scope: ParsedScope) -> Value:
        """A value that is known in a graph."""
        start = self._scanner.position
        name = self.name()
        value = scope.find(name)
        if value is None:
            raise self._scanner.problem(f"nothing is named {name} here", start)
        return value

    def own_value(self, scope: ParsedScope, name: str, start: int) -> Value:
        """A value that is mentioned in a graph already, by the name that was read at ``start``."""
        value = scope.values.get(name)
        if value is None:
            raise self._scanner.problem(f"nothing is named {name} in this graph", start)
        return value

    def op_name(self) -> str | int:
        """How an op is named: by its first result, or by its place."""
        if self._scanner.accept_word("op"):
            return self._scanner.count("the place of an op")
        return self.name()

    def op_place(self, scope: ParsedScope, name: str | int, start: int) -> int:
        """The place of an op in a graph, by what :meth:`op_name` read at ``start``."""
        place = name if isinstance(name, int) else scope.maker(name)
        if place is None or place >= len(scope.ops):
            raise self._scanner.problem(f"there is no op {name} in this graph", start)
        return place

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
            owner = self.op_name()
            place = owner if isinstance(owner, str) else f"op {owner}"
            path += f" in {worded(word)}{index} of {place}"
        return path
