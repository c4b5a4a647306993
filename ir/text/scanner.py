"""Reads the IR text from left to right, and says where it is not what it should be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ModelError
from .words import FLOAT, INTEGER, WORD

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*+)*+")
_JSON = json.JSONDecoder()
T = TypeVar("T")
_SHOWN = 24  # characters of what was found instead


class Scanner:
    """A place in a text. Blanks, line ends and comments (``//`` to the end of the line) are skipped.

    Args:
        text: what to read.
        source: how errors name the text.
    """

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self.position = 0
        self._skip(0)

    def sees(self, mark: str) -> bool:
        """Whether ``mark`` comes next."""
        return self._text.startswith(mark, self.position)

    def accept(self, mark: str) -> bool:
        """Goes on behind ``mark`` if it comes next."""
        found = self._text.startswith(mark, self.position)
        if found:
            self._skip(self.position + len(mark))
        return found

    def expect(self, mark: str) -> None:
        """Goes on behind ``mark``, which must come next."""
        if not self.accept(mark):
            raise self.error(f"'{mark}'")

    def looks_at(self, pattern: re.Pattern[str]) -> bool:
        """Whether something comes next that begins as a pattern says."""
        return pattern.match(self._text, self.position) is not None

    def at_end(self) -> bool:
        """Whether the text is read."""
        return self.position >= len(self._text)

    def keyword(self) -> str:
        """The word that comes next, without going on; empty if there is none."""
        match = WORD.match(self._text, self.position)
        return match[0] if match else ""

    def accept_word(self, word: str) -> bool:
        """Goes on behind ``word`` if it comes next and ends there."""
        return self.keyword() == word and self.accept(word)

    def expect_word(self, word: str) -> None:
        """Goes on behind ``word``, which must come next."""
        if not self.accept_word(word):
            raise self.error(f"'{word}'")

    def word(self, what: str, pattern: re.Pattern[str] = WORD) -> str:
        """A word or what else a pattern asks for, or anything in quotes."""
        found = self.accept_pattern(pattern)
        return self.string(what) if found is None else found

    def string(self, what: str) -> str:
        """What stands in quotes."""
        if not self.sees('"'):
            raise self.error(what)
        found: str = self._json("the closing quote and valid escapes")
        return found

    def json_object(self) -> dict[str, Any]:
        """A JSON object."""
        if not self.sees("{"):
            raise self.error("a JSON object")
        found: dict[str, Any] = self._json("valid JSON")
        return found

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        """What matches a pattern."""
        found = self.accept_pattern(pattern)
        if found is None:
            raise self.error(what)
        return found

    def accept_pattern(self, pattern: re.Pattern[str]) -> str | None:
        """What matches a pattern, if that comes next."""
        match = pattern.match(self._text, self.position)
        if match is not None:
            self._skip(match.end())
            return match[0]
        return None

    def items(self, read: Callable[[], T], closing: str) -> list[T]:
        """What ``read`` finds, with commas between, up to ``closing``."""
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(read())
        return found

    def series(self, read: Callable[[], T]) -> list[T]:
        """What ``read`` finds, at least once, with commas between."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return found

    def integer(
        self, what: str = "an integer", lowest: int = -(1 << 63), highest: int = (1 << 63) - 1
    ) -> int:
        """A whole number within limits; of 64 bits with a sign, if none are given."""
        start = self.position
        number = int(self.take(INTEGER, what))
        if not lowest <= number <= highest:
            raise self.error(f"{what} from {lowest} to {highest}", start)
        return number

    def real(self, what: str = "a number") -> float:
        """A number; the text decides its precision."""
        return float(self.take(FLOAT, what))

    def error(self, expected: str, position: int | None = None) -> ModelError:
        """The error that something else was expected here, or at ``position``."""
        position = self.position if position is None else position
        found = self._text[position : position + _SHOWN].split("\n", 1)[0]
        seen = f"'{found}'" if found else "the end of the line" if position < len(self._text) else "the end"
        return self.problem(f"expected {expected}, found {seen}", position)

    def problem(self, sentence: str, position: int | None = None) -> ModelError:
        """An error about this place, or about ``position``."""
        position = self.position if position is None else position
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        return ModelError(f"{self._source}, line {line}, column {column}: {sentence}")

    def _skip(self, position: int) -> None:
        match = _BLANK.match(self._text, position)
        self.position = match.end() if match else position

    def _json(self, what: str) -> Any:
        start = self.position
        try:
            found, end = _JSON.raw_decode(self._text, start)
            str(found).encode("utf-8")
        except json.JSONDecodeError as error:
            raise self.error(what, error.pos) from error
        except RecursionError as error:
            raise self.error("fewer brackets within brackets", start) from error
        except UnicodeEncodeError as error:
            raise self.error("valid Unicode", start) from error
        self._skip(end)
        return found
