"""The residue of a message: what it has besides what the text shows, as a JSON object behind ``raw``.

``raw {"doc_string": "the first", "domain": null}`` sets fields, in protobuf's JSON, and takes away those that
are null (RFC 7396). What JSON cannot hold to the bit stands serialized, in base 64, under an empty name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from ..graph import Op
from ..onnx.protos import copy_fields
from .scanner import Scanner

# The fields that the statements of the text show in full.
MODEL = frozenset({"graph", "functions", "opset_import", "ir_version"})
GRAPH = frozenset({"node", "initializer", "sparse_initializer", "input", "output", "value_info"})
FUNCTION = frozenset({"node", "attribute", "attribute_proto", "opset_import", "value_info"})
NODE = frozenset({"op_type", "input", "output", "attribute"})
GRAPH_ATTRIBUTE = frozenset({"name", "type", "g", "graphs"})

_NOTHING: Mapping[str, Any] = {}
_BYTES = ""


def node_texts(op: Op, blank: Mapping[str, str]) -> dict[str, Any]:
    """The text fields that the node of an op has without a residue; ``blank`` even if they are empty."""
    found = {**blank}
    if op.name:
        found["name"] = op.name
    if op.domain:
        found["domain"] = op.domain
    if op.overload:
        found["overload"] = op.overload
    return found


def residue(
    message: Message, shown: Collection[str] = frozenset(), rebuilt: Mapping[str, Any] = _NOTHING
) -> str:
    """The residue of a message, behind a blank; empty as a rule.

    Args:
        shown: the fields that are never part of it.
        rebuilt: what the other fields are without a residue, as far as they are there.
    """
    fields = {field.name: value for field, value in message.ListFields() if field.name not in shown}
    if fields == rebuilt and not len(UnknownFieldSet(message)):  # type: ignore[no-untyped-call]
        return ""
    same = [name for name, value in fields.items() if name in rebuilt and rebuilt[name] == value]
    rest = type(message)()
    copy_fields(message, rest, leave_out={*shown, *same})
    found = MessageToDict(rest, preserving_proto_field_name=True)
    if message_bytes(ParseDict(found, type(message)())) != message_bytes(rest):
        found = {_BYTES: base64.b64encode(message_bytes(rest)).decode("ascii")}
    found |= dict.fromkeys(name for name in rebuilt if name not in fields)
    text = json.dumps(found, ensure_ascii=False)
    return f" raw {text if text.isprintable() else json.dumps(found)}"


def message_bytes(message: Message) -> bytes:
    """The bytes of a message, the same for equal ones."""
    return message.SerializeToString(deterministic=True)


def read_residue(scanner: Scanner, message: Message, shown: Collection[str] = frozenset()) -> None:
    """Changes a message by the residue that comes next, if one does.

    Args:
        shown: the fields that cannot be part of it.
    """
    if not scanner.accept_word("raw"):
        return
    start, kind = scanner.position, message.DESCRIPTOR
    found = scanner.json_object()
    rest = type(message)()
    try:
        rest.ParseFromString(base64.b64decode(found.pop(_BYTES, ""), validate=True))
        ParseDict({name: value for name, value in found.items() if value is not None}, rest)
    except (ParseError, DecodeError, ValueError, TypeError) as error:
        raise scanner.error(f"the fields of {kind.name} as JSON", start) from error
    for name in (*found, *(field.name for field, _ in rest.ListFields())):
        if name in shown or name not in kind.fields_by_name:
            raise scanner.problem(f"'{name}' is no further field of {kind.name}", start)
        message.ClearField(name)
    message.MergeFrom(rest)
