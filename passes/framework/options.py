"""Options of passes: declaring, validating and comparing them.

The fields of a frozen dataclass are its options. The same validation runs whether a pass is written in a
pipeline text, in TOML or in Python, so a value of the wrong type never reaches ``run``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import ConfigDict, TypeAdapter

from qc.ir.errors import UsageError, nearest

from .option_types import choices, phrase


class Configurable(Protocol):
    """A frozen dataclass with options: a pass or a combinator."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    name: ClassVar[str]
    kind: ClassVar[str]


C = TypeVar("C", bound=Configurable)
_LARGEST_INTEGER = 2**63 - 1  # what counts anything in Python and numpy takes no larger one


class OptionError(UsageError):
    """An option that does not exist, or a value that does not fit it.

    Attributes:
        option: the option's name as the user wrote it.
        unknown: whether the option itself is at fault, not its value.
    """

    def __init__(self, sentence: str, option: str, unknown: bool) -> None:
        super().__init__(sentence)
        self.option = option
        self.unknown = unknown


@dataclass(frozen=True)
class OptionType:
    """One option of a pass or combinator: its type, and pydantic's check of that type."""

    name: str
    annotation: Any
    help: str
    adapter: TypeAdapter[Any]


def option(default: Any, help: str, path: tuple[str, ...] = ()) -> Any:
    """Declares an option of a pass: ``bins: int = option(2048, "number of histogram bins")``.

    Bounds go into the type: ``bins: Annotated[int, Ge(1)]`` with ``annotated_types.Ge``.
    An option whose type includes ``None`` must have ``None`` as its default, since ``None`` is written by
    leaving the option out.

    A value that ends in one of ``path`` is the path of a file that the pass reads; ``("",)`` says that of
    every value. Such files come along with a reproducer.
    """
    return dataclasses.field(default=default, metadata={"help": help, "path": path})


def paths(instance: Configurable) -> dict[str, str]:
    """The options that name files which the pass reads, with their values."""
    found = {}
    for field in dataclasses.fields(instance):
        value, endings = getattr(instance, field.name), field.metadata.get("path", ())
        if endings and value and value.endswith(endings):
            found[field.name] = value
    return found


@functools.cache
def option_types(owner: type[Configurable]) -> dict[str, OptionType]:
    """The options of a pass or combinator in the order of their declaration.

    Raises:
        TypeError: an option has a type that cannot be written in a pipeline.
    """
    hints = typing.get_type_hints(owner, include_extras=True)
    config = ConfigDict(strict=True, allow_inf_nan=False)
    found = {}
    for field in dataclasses.fields(owner):
        if not field.metadata.get("option", True):
            continue
        phrase(hints[field.name])
        adapter = TypeAdapter(hints[field.name], config=config)
        found[field.name] = OptionType(field.name, hints[field.name], field.metadata.get("help", ""), adapter)
    return found


def build(owner: type[C], values: Mapping[str, object], **fixed: object) -> C:
    """Makes a pass or combinator from option values that a user wrote; ``fixed`` fields are no options.

    Raises:
        OptionError: unknown option, or a value of the wrong type.
        UsageError: the options contradict each other, if the pass checks that.
    """
    known = list(option_types(owner))
    for name in values:
        if name not in known:
            raise OptionError(_unknown_option(owner, name, known), name, unknown=True)
    return owner(**values, **fixed)


def validate_options(instance: Configurable) -> None:
    """Checks every option of a just made instance and replaces it by its canonical value.

    Lists become tuples, names of enum members become members, integers become floats where a number is due.

    Raises:
        OptionError: a value does not fit the type of its option.
    """
    for name, declared in option_types(type(instance)).items():
        value = _canonical(type(instance), declared, getattr(instance, name))
        object.__setattr__(instance, name, value)


def defaults(owner: type[Configurable]) -> dict[str, object]:
    """The canonical default of every option."""
    plain = {field.name: field.default for field in dataclasses.fields(owner)}
    types = option_types(owner)
    return {name: _canonical(owner, declared, plain[name]) for name, declared in types.items()}


def changed_options(instance: Configurable) -> dict[str, Any]:
    """The options that differ from their default, as plain values (enum members as their values)."""
    found = {}
    for name, default in defaults(type(instance)).items():
        value = getattr(instance, name)
        if type(value) is not type(default) or value != default:
            found[name] = plain(value)
    return found


def _canonical(owner: type[Configurable], declared: OptionType, value: object) -> object:
    # Through JSON, because pydantic's strict mode is then exactly what a text needs: lists are tuples and
    # values are enum members, but 1.5 is no integer, 1 is no boolean and "1" is no number.
    try:
        found = declared.adapter.validate_json(json.dumps(plain(value)))
    except (TypeError, ValueError):
        raise OptionError(_wrong_value(owner, declared, value), declared.name, unknown=False) from None
    if isinstance(found, int) and abs(found) > _LARGEST_INTEGER:
        said = f"option '{declared.name}' of {owner.kind} '{owner.name}' must be {_LARGEST_INTEGER} at most"
        raise OptionError(said, declared.name, unknown=False)
    return found


def _unknown_option(owner: type[Configurable], name: str, known: list[str]) -> str:
    sentence = f"{owner.kind} '{owner.name}' has no option '{name}'"
    former: Mapping[str, str] = getattr(owner, "former_options", {})
    if name in former:
        return f"{sentence} any more: {former[name]}"
    if not known:
        return f"{sentence}; it takes no options"
    return f"{sentence}{nearest(name, known)}; its options are {', '.join(known)}"


def _wrong_value(owner: type[Configurable], declared: OptionType, value: object) -> str:
    shown = str(value).lower() if isinstance(value, bool) else repr(plain(value))
    words = [str(choice) for choice in choices(declared.annotation)]
    hint = nearest(value, words) if isinstance(value, str) else ""
    accepted = phrase(declared.annotation)
    return f"option '{declared.name}' of {owner.kind} '{owner.name}' must be {accepted}, not {shown}{hint}"


def plain(value: object) -> Any:
    """A value as text and TOML write it: enum members as their values, tuples as lists."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value
