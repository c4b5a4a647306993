"""Declaring options: those of a compilation, and those of the commands. Imports nothing that takes time."""

from __future__ import annotations

import dataclasses
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from qc.ir.base.fix_shape import named_length
from qc.ir.errors import UsageError

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


def plain_types(owner: type) -> dict[str, Any]:
    """The types of the options of a dataclass that need no parser of their own, by name."""
    options = options_of(owner).items()
    plain = {name: field.type for name, field in options if field.metadata["option"].parse is None}
    described = types.SimpleNamespace(__annotations__=plain)
    return typing.get_type_hints(described, vars(sys.modules[owner.__module__]), include_extras=True)


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """A type without its bounds, the bounds, and whether None will do as well."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if is_union else (annotation,)
    kind = next(one for one in parts if one is not types.NoneType)
    bounds: tuple[Any, ...] = ()
    if typing.get_origin(kind) is Annotated:
        kind, *bounds_of_kind = typing.get_args(kind)
        bounds = tuple(bounds_of_kind)
    return kind, bounds, types.NoneType in parts


def limits(bounds: tuple[Any, ...], least: int, most: int) -> tuple[int, int]:
    """The least and the greatest number that bounds allow; ``least`` and ``most`` where they say nothing."""
    found_least: Any = next((bound.ge for bound in bounds if isinstance(bound, Ge)), least)
    found_most: Any = next((bound.le for bound in bounds if isinstance(bound, Le)), most)
    return found_least, found_most


def check_plain(owner: object) -> None:
    """Raises UsageError if a dataclass holds, for a plain option, what the command line would refuse."""
    for name, annotation in plain_types(type(owner)).items():
        value = getattr(owner, name)
        kind, bounds, is_optional = unwrapped(annotation)
        if value is None and is_optional:
            continue
        if kind is int:
            check_number(name, value, *limits(bounds, 1, sys.maxsize))
        elif not isinstance(value, kind):
            words = {bool: "True or False", str: "text"}
            raise UsageError(f"{name}={value!r} is not {words[kind]}")


def check_number(name: str, value: object, least: int, most: int) -> None:
    """Raises UsageError for what is no whole number from ``least`` to ``most``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < least:
        raise UsageError(f"{name}={value!r} is not a whole number of at least {least}")
    if int(value) > most:
        raise UsageError(f"{name}={value!r} is more than {most}")


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


def single(text: str) -> str:
    """Text that is no list of several ``NAME=VALUE``."""
    if re.fullmatch(r"[^=,]+=[^=,]+(?:,[^=,]+=[^=,]+)+", text):
        first, *others = text.split(",")
        raise ValueError(f"{text!r} is more than one: repeat the option, for {first} and for {others[0]}")
    return word(text)


def path(text: str) -> Path:
    """The path of a file; ``-``, which stands for a standard stream elsewhere, is none."""
    if text == "-":
        raise ValueError("'-' is no file, and qc reads and writes files only; name one")
    return Path(word(text))


def length(text: str) -> str:
    """``NAME=N``: a length for a free dimension, as text."""
    named_length(single(text))
    return text
