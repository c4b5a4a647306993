"""The small words of the IR text: names, strings and numbers, each written so that nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from ctypes import c_float
from functools import lru_cache

# What a name may consist of without quotes; a colon only between other characters.
_NAME = r"[A-Za-z0-9_./$-]++(?::++[A-Za-z0-9_./$-]++)*+"
NAME = re.compile(_NAME)
_NAMES = re.compile(f"(?:{_NAME}\n)*+")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
INTEGER = re.compile(r"-?\d{1,20}(?![\w.])")
FLOAT = re.compile(r"-?(?:\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?|inf|nan)(?!\w)")


def quoted(text: str) -> str:
    """The text in quotes on one line, with escapes for quotes and for what cannot be seen."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def named(text: str) -> str:
    """A name of a value or an op; in quotes if it has odd characters."""
    return text if NAME.fullmatch(text) else quoted(text)


def all_named(texts: Sequence[str]) -> list[str]:
    """The same for many names, which is quick if none has odd characters."""
    lines = "".join([f"{text}\n" for text in texts])
    if _NAMES.fullmatch(lines) and lines.count("\n") == len(texts):
        return list(texts)
    return [named(text) for text in texts]


@lru_cache(maxsize=1 << 12)
def worded(text: str) -> str:
    """A name of an attribute, an op type, a domain or a graph; in quotes if it has odd characters."""
    return text if WORD.fullmatch(text) else quoted(text)


def quoted_bytes(data: bytes) -> str:
    """A string of a model; raises UnicodeDecodeError if it is no text."""
    return quoted(data.decode("utf-8"))


def single(number: float) -> str:
    """The shortest text of a float32, always with a point, an exponent, ``inf`` or ``nan``."""
    if number == 0 or number != number:  # the two zeros are equal, and not-a-number is not
        return repr(number)
    for digits in (7, 8, 9):
        text = f"{number:.{digits}g}"
        if _as_single(text) == number:
            break
    return text if any(mark in text for mark in ".en") else f"{text}.0"


def _as_single(text: str) -> float:
    return c_float(float(text)).value
