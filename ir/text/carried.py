"""What an original proto carries beyond what the text says in words: it goes along as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from ..onnx.protos import copy_fields
from .scanner import Scanner
from .words import base64_text, quoted

M = TypeVar("M", bound=Message)
_METADATA = "metadata_props"
_ENTRY = frozenset({"key", "value"})
_NOTHING: Mapping[str, str] = {}


def has_more(message: Message, said: frozenset[str]) -> bool:
    """Whether a message has other fields than those, of any kind."""
    return any(field.name not in said for field, _ in message.ListFields()) or has_unknown_fields(message)


def has_unknown_fields(message: Message) -> bool:
    """Whether a message has fields of a later version of ONNX."""
    return len(UnknownFieldSet(message)) > 0  # type: ignore[no-untyped-call]


def without(message: M, fields: frozenset[str]) -> M:
    """A copy without some fields."""
    rest = type(message)()
    copy_fields(message, rest, leave_out=fields)  # without a copy of what may be large
    return rest


def message_text(message: Message) -> str:
    """The bytes of a message, base 64 in quotes."""
    return base64_text(message_bytes(message))


def message_bytes(message: Message) -> bytes:
    """The bytes of a message, the same for equal ones."""
    return message.SerializeToString(deterministic=True)


def read_message(scanner: Scanner, kind: type[M], but: frozenset[str] = frozenset()) -> M:
    """What :func:`message_text` wrote, without the fields that the text has elsewhere."""
    start = scanner.position
    message = kind()
    try:
        message.ParseFromString(scanner.base64())
    except DecodeError as error:
        raise scanner.error(f"the bytes of a {kind.DESCRIPTOR.name}", start) from error
    for field in but:
        message.ClearField(field)
    return message


# -- notes ------------------------------------------------------------------------------------------


def notes(
    message: Message,
    said: frozenset[str],
    words: Mapping[str, str] = _NOTHING,
    blank: frozenset[str] = frozenset(),
) -> list[str]:
    """What a message carries that no statement of the text shows, as a rule nothing.

    Args:
        said: the fields that the text shows in full.
        words: the text fields that it shows, with what it shows for them.
        blank: those among them that are there even if they are empty.
    """
    fields = {field.name: value for field, value in message.ListFields() if field.name not in said}
    absent = [name for name in words if (words[name] or name in blank) and name not in fields]
    found = [f"no {name}" for name in absent]
    rest = set(said)
    for name, value in fields.items():
        if words.get(name) == value and (value or name in blank):
            rest.add(name)
        elif isinstance(value, str | int):
            found.append(f"{name} {quoted(value) if isinstance(value, str) else value}")
            rest.add(name)
        elif name == _METADATA and not any(has_more(entry, _ENTRY) for entry in value):
            found += [f"metadata {quoted(entry.key)} {quoted(entry.value)}" for entry in value]
            rest.add(name)
    if fields.keys() - rest or has_unknown_fields(message):
        found.append(f"raw {message_text(without(message, frozenset(rest)))}")
    return found


def notes_in_place(message: Message, said: frozenset[str]) -> str:
    """The notes about a message, to be put right behind what the text shows of it."""
    found = notes(message, said)
    return f" with ({', '.join(found)})" if found else ""


class Note(NamedTuple, Generic[M]):
    """What :func:`notes` wrote about a message: further fields, and text fields that are not there."""

    more: M
    absent: frozenset[str]


def read_note(scanner: Scanner, kind: type[M], said: frozenset[str]) -> Note[M]:
    """What :func:`notes` wrote about a message of a kind; fields in ``said`` cannot be among it."""
    more, absent = kind(), set()

    def part() -> None:
        if scanner.accept_word("raw"):
            more.MergeFrom(read_message(scanner, kind, said))
        elif scanner.accept_word("metadata"):
            _read_metadata(scanner, more)
        elif scanner.accept_word("no"):
            absent.add(scanner.word("a field"))
        else:
            _read_field(scanner, more, said)

    scanner.series(part)
    return Note(more, frozenset(absent))


def read_notes_in_place(scanner: Scanner, message: Message, said: frozenset[str]) -> None:
    """What :func:`notes_in_place` wrote, if that comes next, into a message."""
    if scanner.accept_word("with"):
        scanner.expect("(")
        message.MergeFrom(read_note(scanner, type(message), said).more)
        scanner.expect(")")


def _read_metadata(scanner: Scanner, message: Message) -> None:
    start = scanner.position
    key, value = scanner.string("a key"), scanner.string("a value")
    if _METADATA not in message.DESCRIPTOR.fields_by_name:
        raise scanner.problem("there is no metadata here", start)
    getattr(message, _METADATA).add(key=key, value=value)


def _read_field(scanner: Scanner, message: Message, said: frozenset[str]) -> None:
    start = scanner.position
    name = scanner.word("doc_string, metadata or another field")
    default = getattr(message, name) if name in message.DESCRIPTOR.fields_by_name else None
    if name in said or not isinstance(default, str | int):
        raise scanner.error("doc_string, metadata or another field", start)
    value = scanner.string("a text") if isinstance(default, str) else scanner.integer()
    try:
        setattr(message, name, value)
    except ValueError as error:
        raise scanner.error(f"a value of {name}", start) from error


def completed(
    kind: type[M],
    note: Note[M] | None,
    words: Mapping[str, str] = _NOTHING,
    blank: frozenset[str] = frozenset(),
) -> M:
    """The message that the text shows with ``words``, with what a note adds."""
    message = kind()
    for name, text in words.items():
        if (text or name in blank) and (note is None or name not in note.absent):
            setattr(message, name, text)
    if note is not None:
        message.MergeFrom(note.more)
    return message
