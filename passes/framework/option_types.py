"""The types an option of a pass may have, and how they are called in errors and help."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function


@dataclass(frozen=True, eq=False)
class Aliases:
    """Other names for choices: ``Annotated[Literal["min-max", ...], Aliases({"min_max": "min-max"})]``.

    An option that is given by another name has the choice itself as its value.
    """

    choices: Mapping[str, str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._choice, handler(source))

    def _choice(self, given: object) -> object:
        return self.choices.get(given, given) if isinstance(given, str) else given

    def __str__(self) -> str:
        return f" (also {', '.join(f'{alias} for {choice}' for alias, choice in self.choices.items())})"


_PLAIN: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    type(None): "absent",
}
_BOUNDS: dict[type, tuple[str, str]] = {
    annotated_types.Ge: ("ge", "at least {}"),
    annotated_types.Gt: ("gt", "above {}"),
    annotated_types.Le: ("le", "at most {}"),
    annotated_types.Lt: ("lt", "below {}"),
    annotated_types.MinLen: ("min_length", "at least {} long"),
    annotated_types.MaxLen: ("max_length", "at most {} long"),
}


def phrase(annotation: Any) -> str:
    """Says in words what an option of this type accepts: ``an integer, at least 1``.

    Accepted are ``bool``, ``int``, ``float``, ``str``, string enums, ``Literal``, unions and ``Optional``,
    tuples of these, and ``Annotated`` with bounds from ``annotated_types`` or ``pydantic.Field``.

    Raises:
        TypeError: the type is none of these, so it has no text form.
    """
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        aliases = "".join(str(item) for item in arguments[1:] if isinstance(item, Aliases))
        return ", ".join([phrase(arguments[0]), *_bounds(arguments[1:])]) + aliases
    if choices(annotation):
        return f"one of {', '.join(str(choice) for choice in choices(annotation))}"
    if origin in (Union, types.UnionType):
        return " or ".join(phrase(member) for member in arguments if member is not type(None))
    if origin is tuple and arguments:
        return _tuple_phrase(arguments)
    raise TypeError(f"{annotation!r} is no type of an option")


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a ``Literal`` or an enum, as they are written in a pipeline; empty for other types."""
    if typing.get_origin(annotation) is Annotated:
        return choices(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return tuple(member.value for member in annotation)
    return ()


def accepts_none(annotation: Any) -> bool:
    """Whether the type is an ``Optional``."""
    if typing.get_origin(annotation) is Annotated:
        return accepts_none(typing.get_args(annotation)[0])
    is_union = typing.get_origin(annotation) in (Union, types.UnionType)
    return annotation is type(None) or (is_union and type(None) in typing.get_args(annotation))


def _tuple_phrase(arguments: tuple[Any, ...]) -> str:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return f"a list, each item {phrase(arguments[0])}"
    return f"a list of {len(arguments)}: {'; '.join(phrase(argument) for argument in arguments)}"


def _bounds(metadata: tuple[Any, ...]) -> list[str]:
    """The bounds among the metadata of an ``Annotated`` type, each as words."""
    found = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            found += _bounds(tuple(item.metadata))
        elif isinstance(item, annotated_types.GroupedMetadata):
            found += _bounds(tuple(item))
        elif type(item) in _BOUNDS:
            attribute, words = _BOUNDS[type(item)]
            found.append(words.format(getattr(item, attribute)))
    return found
