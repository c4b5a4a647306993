"""Patterns as text: the Python expression that builds them, with a line per shared part."""

from __future__ import annotations

from typing import Any

Part = Any  # an element of a pattern or a variable for an attribute: it has parts and is written


class Writer:
    """Writes the parts of one pattern; those that are used twice are held by a variable.

    Attributes:
        lines: those that give the variables their parts.
    """

    def __init__(self, root: Part) -> None:
        self._names: dict[Part, str] = {}
        self.lines: list[str] = []
        self._shared = _shared(root)

    def __call__(self, part: Part) -> str:
        if part in self._names:
            return self._names[part]
        text = part.written(self)
        if part not in self._shared:
            return text
        name = self._names[part] = self._unused(part.name or f"p{len(self._names)}")
        self.lines.append(f"{name} = {text}")
        return name

    def _unused(self, hint: str) -> str:
        name, number = hint, 1
        while name in self._names.values():
            number += 1
            name = f"{hint}{number}"
        return name


def text_of(root: Part) -> str:
    """The text that builds ``root``: one expression, after a line for each part that is used twice."""
    writer = Writer(root)
    expression = writer(root)
    return "\n".join([*writer.lines, expression])


def call(function: str, *arguments: str, **options: object) -> str:
    """A call without the options that are None; conditions are told by their names."""
    texts = (
        f"{name}={getattr(option, '__name__', repr(option))}"
        for name, option in options.items()
        if option is not None
    )
    return f"{function}({', '.join([*arguments, *texts])})"


def _shared(root: Part) -> set[Part]:
    uses: dict[Part, int] = {}
    pending = [root]
    while pending:
        for part in pending.pop().parts:
            uses[part] = uses.get(part, 0) + 1
            if uses[part] == 1:
                pending.append(part)
    return {part for part, count in uses.items() if count > 1 and not part.is_predicate}
