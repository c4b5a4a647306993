"""Declaring options: those of a compilation, and those of the commands. Imports nothing that takes time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUIRED: Any = dataclasses.MISSING


@dataclass(frozen=True)
class Option:
    """What the command line knows of a field besides its type and default.

    Attributes:
        help: what the help says; None for an argument, which its command explains.
        flags: how it is written; short ones stand beside the name of the field, a long one takes its place.
        metavar: what stands for its value in the help.
        parse: what makes a value of a word, raising ValueError with a sentence; None for the type's own way.
        bare: the value if the option is written without one; None if it needs one.
        envvar: a variable of the environment that gives it, too.
    """

    help: str | None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Callable[[str], object] | None = None
    bare: object = None
    envvar: str | None = None


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:
    """Declares an option: ``samples: Annotated[int, Ge(1)] = option(4, "Samples to run.", metavar="N")``.

    One whose type is a tuple may be repeated, one of type bool is a switch. ``more`` are the other attributes
    of :class:`Option`.
    """
    return dataclasses.field(default=default, metadata={"option": Option(help, flags, **more)})


def argument(metavar: str, default: Any = REQUIRED) -> Any:
    """Declares an argument, which has no name on the command line; one or more words if it is a tuple."""
    return dataclasses.field(default=default, metadata={"option": Option(None, metavar=metavar)})


def options_of(owner: type) -> dict[str, dataclasses.Field]:
    """The fields of a dataclass that are options, by name."""
    return {field.name: field for field in dataclasses.fields(owner) if "option" in field.metadata}


def some_of(owner: type, *names: str) -> Any:
    """Declares options that another dataclass has, as one field: what was given for them, by name."""
    declared = options_of(owner)
    return dataclasses.field(metadata={"some": (owner, {name: declared[name] for name in names})})


Given = Mapping[str, Any]


def word(text: str) -> str:
    """Text that is not empty."""
    if not text:
        raise ValueError("it is empty")
    return text


def path(text: str) -> Path:
    """The path of a file."""
    return Path(word(text))
