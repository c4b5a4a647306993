"""TOML files: read as text, written value by value, and the lines of their keys, for error messages."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from qc.ir.errors import UsageError, reason_of

# A table: "" for the top of the file, the name of a [table], "name.0" and so on for each [[name]], or the
# number of a step's table counted from 0 in the order of the file, those inside combinators included.
Where: TypeAlias = str | int
TOP: Where = ""

_HEADER = re.compile(r"\s*\[\[?\s*([\w.\"'-]+)\s*\]\]?\s*(#.*)?")
_STEP_HEADER = re.compile(r"\s*\[\[\s*pass(\.pass)*\s*\]\]\s*(#.*)?")


def read_text(path: str | Path, what: str) -> str:
    """The text of a file; raises UsageError, which calls it ``what``, if there is none or it is no text.

    It may begin with the mark that editors on Windows put in front, which is no part of it.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no {what} '{path}'") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{what} '{path}' cannot be read: it is not a text in UTF-8; name the {what}"
        ) from None
    except OSError as error:
        raise UsageError(f"{what} '{path}' cannot be read: {reason_of(error)}") from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The content of a file; raises UsageError, which calls it ``source``, if it is not valid TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers that Python does not read
        raise UsageError(f"{source} is not valid TOML: {error}") from error


def toml_value(value: object) -> str:
    """A value as TOML, tables in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if not isinstance(value, str):
        return repr(value)
    # JSON's escapes are TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(key: str) -> str:
    """A key as TOML, in quotes where it has to be."""
    return key if key.isidentifier() and key.isascii() else toml_value(key)


class TomlSource:
    """The text of a file and the name that errors call it by.

    Steps' tables are located by counting their headers. If ``step_tables``, the number that the parser
    found, is another, some are written inline, and lines are left out of the errors.
    """

    def __init__(self, text: str, name: str, step_tables: int) -> None:
        self._name = name
        self._lines = text.splitlines()
        self._headers: dict[Where, int] = {TOP: 0}
        steps, counts = 0, Counter[str]()
        for number, line in enumerate(self._lines, start=1):
            header = _HEADER.fullmatch(line)
            if _STEP_HEADER.fullmatch(line):
                self._headers[steps] = number
                steps += 1
            elif header:
                self._headers.setdefault(header[1], number)
                if line.lstrip().startswith("[["):
                    self._headers[f"{header[1]}.{counts[header[1]]}"] = number
                    counts[header[1]] += 1
        self._reliable = steps == step_tables

    def error(self, sentence: str, where: Where = TOP, key: str | None = None) -> UsageError:
        """An error about a key of a table, or about the table itself."""
        return UsageError(f"{self.place(where, key)}: {sentence}")

    def place(self, where: Where = TOP, key: str | None = None) -> str:
        """How messages call a key of a table, or the table itself: the file, and the line if it is known."""
        line = self.line(where, key)
        return f"{self._name}, line {line}" if line else self._name

    def line(self, where: Where = TOP, key: str | None = None) -> int | None:
        """The line of a key of a table, or of the header of the table; None if it cannot be told."""
        header = self._headers.get(where)
        if header is None or (isinstance(where, int) and not self._reliable):
            return None
        if key is None:
            return header or None
        assignment = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for number, line in enumerate(self._lines[header:], start=header + 1):
            if _HEADER.fullmatch(line):
                break
            if assignment.match(line):
                return number
        return self._headers.get(key) if where == TOP else None
