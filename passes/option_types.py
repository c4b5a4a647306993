"""The types an option of a pass may have, and how they are called in errors and help."""

from __future__ import annotations

import enum
import types
import typing
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic.fields import FieldInfo

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
    if choices(annotation):
        return f"one of {', '.join(str(choice) for choice in choices(annotation))}"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return ", ".join([phrase(arguments[0]), *_bounds(arguments[1:])])
    if origin in (Union, types.UnionType):
        return " or ".join(phrase(member) for member in arguments if member is not type(None))
    if origin is tuple and arguments:
        return _tuple_phrase(arguments)
    raise TypeError(f"{annotation!r} is no type of an option")


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a ``Literal`` or an enum, as they are written in a pipeline; empty for other types."""
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
