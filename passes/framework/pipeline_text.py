"""Reads the text form of a pipeline, such as ``a,b{x=1},fixpoint<max=8>(c,d)``.

::

    pipeline = [ step { "," step } [ "," ] ]
    step     = name [ "{" options "}" ]                         a pass, or file.py:Class with one
             | name [ "{" options "}" ]                         the passes of a pipeline that has a name
             | name [ "<" options ">" ] "(" pipeline ")"        a combinator: fixpoint, repeat
    options  = { name "=" value [ "," ] }
    value    = number | "true" | "false" | word | string | "[" [ value { "," value } [ "," ] ] "]"
    string   = "a JSON string" | 'characters as they are'

A word is an unquoted run of letters, digits and ``_ . / : + * @ % -``. White space and line breaks are free.
Options of a pipeline are those of its passes: ``w8a8{calibrate.method=percentile}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from qc.ir.errors import UsageError

from .base import Pass
from .notation import WORD, pointed, value_of_word
from .options import C, OptionError, build
from .overrides import with_option
from .pipeline import COMBINATORS, Combinator, Pipeline, Step
from .registry import Registry, pass_class, registry

_TOKEN = re.compile(
    rf"""\s*(?:(?P<word>{WORD.pattern})|(?P<mark>[,<>{{}}()\[\]=])"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<end>$)|(?P<wrong>.))""",
    re.DOTALL,
)


# Pipelines by name, whose passes then stand there.
NamedPipelines = Mapping[str, Pipeline]
NO_NAMES: NamedPipelines = MappingProxyType({})


class Token(NamedTuple):
    """A piece of the text: its kind (``word``, ``mark``, ``string``, ``end``) and span ``[start, end)``."""

    kind: str
    text: str
    start: int
    end: int


class Given(NamedTuple):
    """An option as it was written: its name, where that stands, its value, and where the value stands."""

    name: Token
    value: object
    start: int
    end: int


def parse_pipeline(
    text: str,
    known: Registry | None = None,
    named: NamedPipelines = NO_NAMES,
    runs_code: bool = False,
) -> Pipeline:
    """Reads a pipeline.

    Args:
        text: see above.
        known: the passes it may name; default: all registered ones.
        named: the pipelines it may name.
        runs_code: whether ``file.py:Class`` is imported, which the text of strangers must not ask for.

    Raises:
        UsageError: with the line at fault, carets below the culprit, and the nearest name.
    """
    parser = _Parser(text, _tokens(text), known, named, runs_code)
    try:
        return Pipeline(parser.steps("end"))
    except RecursionError:
        raise UsageError("the pipeline is nested too deeply") from None


def with_options(pipeline: Pipeline, text: str) -> Pipeline:
    """A pipeline with options of its passes, such as ``calibrate.method=percentile``, changed.

    Raises:
        UsageError: with carets below the culprit.
    """
    parser = _Parser(text, _tokens(text))
    return Pipeline(parser.changed(pipeline.steps, "end"))


def step_class(name: str, known: Registry, named: NamedPipelines) -> type[Pass] | type[Combinator]:
    """The pass or combinator of that name.

    Raises:
        UsageError: there is none; the sentence has the nearest name, be it that of a pipeline.
    """
    return COMBINATORS.get(name) or known.get(name, named)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        assert match is not None and match.lastgroup is not None
        kind, position = match.lastgroup, match.end()
        if kind == "wrong":
            raise _unexpected_character(text, match.start(kind))
        start, end = match.span(kind)
        if kind == "end" and tokens:
            # Errors about the end point right behind the last piece, not behind white space or line breaks.
            start = end = tokens[-1].end
        tokens.append(Token(kind, match[kind], start, end))
    return tokens


def _unexpected_character(text: str, position: int) -> UsageError:
    character = text[position]
    if character in "\"'":
        return pointed("this string has no closing quote", text, position, len(text))
    sentence = f"a pipeline cannot hold {character!r} here; put text that holds it in quotes"
    return pointed(sentence, text, position, position + 1)


@dataclass
class _Parser:
    text: str
    tokens: list[Token]
    known: Registry | None = None
    named: NamedPipelines = field(default_factory=dict)
    runs_code: bool = False
    position: int = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def steps(self, closing: str) -> list[Step]:
        """Reads steps up to the closing mark, or to the end of the text, and takes that too."""
        found: list[Step] = []
        while not self._take(closing):
            found += self._steps_of_one()
            if not self._take(","):
                self._expect(closing, f"',' or {'the end' if closing == 'end' else repr(closing)}")
                break
        return found

    def _steps_of_one(self) -> Sequence[Step]:
        name = self.next
        if name.kind != "word":
            self._fail("a pass is missing here", name)
        self.position += 1
        pipeline = self.named.get(name.text)
        if pipeline is not None:
            return self.changed(pipeline.steps, "}") if self._take("{") else pipeline.steps
        try:
            owner = self._class(name.text)
        except UsageError as error:
            self._fail(str(error), name)
        return [self._pass(owner, name) if issubclass(owner, Pass) else self._combinator(owner, name)]

    def _class(self, name: str) -> type[Pass] | type[Combinator]:
        if ":" not in name:
            # Asked anew for each name: a file that the text has named may bring several passes.
            return step_class(name, self.known or registry(), self.named)
        if self.runs_code:
            return pass_class(name)
        raise UsageError(
            "only --passes takes a pass of a Python file; give the file with --plugin, and name its pass here"
        )

    def changed(self, steps: Sequence[Step], closing: str) -> Sequence[Step]:
        """Reads options up to the closing mark, and puts them into the passes that they name."""
        for given in self._options(closing):
            try:
                steps = with_option(steps, given.name.text, given.value)
            except OptionError as error:
                raise self._wrong_option(error, given) from None
            except UsageError as error:
                raise pointed(str(error), self.text, given.name.start, given.end) from None
        return steps

    def _pass(self, owner: type[Pass], name: Token) -> Pass:
        if self._at("<"):
            self._fail(f"the options of pass '{owner.name}' belong in braces: {owner.name}{{...}}", self.next)
        given = self._options("}") if self._take("{") else []
        if self._at("("):
            names = " and ".join(COMBINATORS)
            self._fail(f"'{owner.name}' is a pass and holds no other passes; only {names} do", self.next)
        return self._build(owner, name, given)

    def _combinator(self, owner: type[Combinator], name: Token) -> Combinator:
        if self._at("{"):
            form = f"{owner.name}<...>(...)"
            self._fail(f"the options of '{owner.name}' belong in angle brackets: {form}", self.next)
        given = self._options(">") if self._take("<") else []
        self._expect("(", f"'(' and the passes to {owner.name}")
        return self._build(owner, name, given, steps=self.steps(")"))

    def _options(self, closing: str) -> list[Given]:
        given: list[Given] = []
        while not self._take(closing):
            name = self.next
            if name.kind != "word":
                self._fail(f"expected an option or '{closing}'", name)
            if name.text in [earlier.name.text for earlier in given]:
                self._fail(f"option '{name.text}' is given twice", name)
            self.position += 1
            self._expect("=", f"'=' and a value for option '{name.text}'")
            start = self.next.start
            value = self._value()
            given.append(Given(name, value, start, self.tokens[self.position - 1].end))
            self._take(",")
        return given

    def _value(self) -> object:
        token = self.next
        if self._take("["):
            return self._list()
        self.position += 1
        if token.kind == "word":
            return value_of_word(token.text)
        if token.kind != "string":
            self._fail("a value is missing here", token)
        return self._string(token)

    def _string(self, token: Token) -> str:
        if token.text.startswith("'"):
            return token.text[1:-1]
        try:
            return str(json.loads(token.text, strict=False))
        except json.JSONDecodeError as error:
            start = token.start + error.pos
            sentence = "unknown escape in a string; write \\\\ for a backslash, or use single quotes"
            raise pointed(sentence, self.text, start, start + 2) from None

    def _list(self) -> list[object]:
        items: list[object] = []
        while not self._take("]"):
            items.append(self._value())
            if not self._take(","):
                self._expect("]", "',' or ']'")
                break
        return items

    def _build(self, owner: type[C], name: Token, given: list[Given], **fixed: object) -> C:
        try:
            return build(owner, {option.name.text: option.value for option in given}, **fixed)
        except OptionError as error:
            culprit = next(option for option in given if option.name.text == error.option)
            raise self._wrong_option(error, culprit) from None
        except UsageError as error:
            raise pointed(str(error), self.text, name.start, name.end) from None

    def _wrong_option(self, error: OptionError, given: Given) -> UsageError:
        start, end = given.name[2:] if error.unknown else (given.start, given.end)
        return pointed(str(error), self.text, start, end)

    def _at(self, mark: str) -> bool:
        """Whether the next token is this mark, or the end."""
        token = self.next
        return token.kind == "end" if mark == "end" else token.kind == "mark" and token.text == mark

    def _take(self, mark: str) -> bool:
        """Moves past the next token if it is this mark, or the end."""
        found = self._at(mark)
        self.position += found
        return found

    def _expect(self, mark: str, wanted: str) -> None:
        if not self._take(mark):
            self._fail(f"expected {wanted}", self.next)

    def _fail(self, sentence: str, token: Token) -> NoReturn:
        raise pointed(sentence, self.text, token.start, token.end)
