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


class Reader(Scanner):
    """A scanner that knows names."""

    def value_name(self) -> str:
        """The name of a value, as the text has it."""
        found = self.accept_pattern(_VALUE)
        if found is not None:
            return found
        start = self.position
        if not self.accept("%"):
            raise self.error("a value, such as %x", start)
        bare = named(self.string("the name of a value"))
        return f"%{bare}{self.accept_pattern(_NUMBER) or ''}"

    def value(self, scope: ParsedScope) -> Value:
        """A value that is known in a graph."""
        start, name = self.position, self.value_name()
        value = scope.find(name)
        if value is None:
            raise self.problem(f"nothing is named {name} here", start)
        return value

    def mention(self) -> Mention:
        """A value of a graph that is told behind it."""
        start = self.position
        return Mention(self.value_name(), start)

    def op_mention(self) -> Mention:
        """An op, by its first result or by its place."""
        start = self.position
        is_place = self.accept_word("op")
        return Mention(self.integer("the place of an op", 0) if is_place else self.value_name(), start)

    def own_value(self, scope: ParsedScope, mention: Mention) -> Value:
        """A value that a graph has already."""
        value = scope.values.get(str(mention.name))
        if value is None:
            raise self.problem(f"nothing is named {mention.name} in this graph", mention.start)
        return value

    def op(self, scope: ParsedScope, mention: Mention) -> Op:
        """An op of a graph."""
        op = scope.op(mention.name)
        if op is None:
            raise self.problem(f"there is no op {mention.name} in this graph", mention.start)
        return op

    def function_key(self) -> FunctionKey:
        """Domain, name and overload of a local function."""
        domain = self.word("the domain of a function")
        self.expect("::")
        return self._function_of(domain)

    def _function_of(self, domain: str) -> FunctionKey:
        name = self.word("the name of a function")
        return domain, name, self.word("an overload") if self.accept("#") else ""

    def path(self) -> str:
        """Where something is: a nested graph or a function; empty for the main graph."""
        path = ""
        while self.accept_word("in"):
            word = self.word("a nested graph or a function")
            if self.accept("::"):
                return f"{path} in {function_path(*self._function_of(word))}"
            index = f":{self.integer('an index', 0)}" if self.accept(":") else ""
            self.expect_word("of")
            owner = self.op_mention().name
            path += f" in {worded(word)}{index} of {owner if isinstance(owner, str) else f'op {owner}'}"
        return path
