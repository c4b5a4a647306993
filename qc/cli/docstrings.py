"""Docstrings for other readers than Python's: flowing paragraphs for a terminal, Markdown for a page."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ROLE = re.compile(r":\w+:`~?\.?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")
_LIST_ITEM = re.compile(r"(\*|-|\d+\.)\s")


def paragraphs(docstring: str) -> Iterator[tuple[str, bool]]:
    """The paragraphs of a docstring, each with whether its lines must stay as they are.

    Running text is joined to one line; indented blocks, lists and tables keep their lines.
    """
    for block in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = block.splitlines()
        keeps = any(line.startswith((" ", "=", "|")) or _LIST_ITEM.match(line) for line in lines)
        if keeps:
            yield block, True
        else:
            yield " ".join(line.strip() for line in lines), False


def plain(text: str) -> str:
    """Without the marks of reStructuredText."""
    return _LITERAL.sub(r"\1", _ROLE.sub(r"\1", text)).replace("::\n", ":\n").removesuffix("::")


def markdown(text: str) -> str:
    """With Markdown's marks for code."""
    return _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", text))
