"""How option values and error positions are written in the text form of a pipeline."""

from __future__ import annotations

import json
import re

from qc.ir.errors import UsageError

from .options import Configurable, changed_options

# Characters of names, numbers, file names and ONNX tensor names; everything else needs quotes.
WORD = re.compile(r"[\w./:+*@%-]+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,300}\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_BOOLEANS = {"true": True, "false": False}
_EXCERPT = 100


def value_of_word(word: str) -> str | int | float | bool:
    """The value of an unquoted word: a boolean or number if it looks like one, otherwise text."""
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _NUMBER.fullmatch(word) else word


def format_value(value: object) -> str:
    """Writes a plain value so that it is read back as the same value of the same type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(format_value(item) for item in value)}]"
    text = str(value)
    if WORD.fullmatch(text) and isinstance(value_of_word(text), str):
        return text
    return json.dumps(text, ensure_ascii=False)


def format_options(owner: Configurable) -> str:
    """The options that are not at their default, as ``a=1 b=[x, y]``."""
    return " ".join(f"{name}={format_value(value)}" for name, value in changed_options(owner).items())


def pointed(sentence: str, text: str, start: int, end: int) -> UsageError:
    """An error whose message shows the line of ``text`` that holds ``[start, end)`` with carets below it."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    column = start - line_start
    # A long line is cut around the culprit, or the terminal wraps it and the carets point nowhere.
    cut = max(0, column - _EXCERPT // 2) if len(line) > _EXCERPT else 0
    shown = ("..." if cut else "") + line[cut : cut + _EXCERPT].replace("\t", " ")
    indent = column - cut + (3 if cut else 0)
    carets = max(1, min(end - start, len(shown) - indent))
    return UsageError(f"{sentence}\n  {shown}\n  {' ' * indent}{'^' * carets}")
