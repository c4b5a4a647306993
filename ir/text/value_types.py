"""Types in the IR text: ``float[N,3]``, ``?`` for an unknown one, and the types of declarations."""

from __future__ import annotations

import re
from functools import lru_cache

from onnx import TensorProto, TypeProto

from ..errors import ModelError
from ..graph import UNKNOWN, ValueType
from ..onnx.types import set_tensor_type, type_of
from .carried import message_bytes, message_text, read_message
from .scanner import Scanner
from .words import WORD, quoted

MAX_TYPE_NESTING = 16
_KINDS = {name.lower(): number for name, number in TensorProto.DataType.items() if number}
_KIND_NAMES = {number: name for name, number in _KINDS.items()}
_KIND = re.compile(r"\?|[a-z][a-z0-9]*")
_PLAIN = re.compile(r'(\?|[a-z][a-z0-9]*)(\[[^\]"\n]*\])?(?=[\s,)=]|$)')
_CONTAINERS = ("sequence", "optional")


@lru_cache(maxsize=1 << 14)
def type_text(type: ValueType) -> str:
    """``float[N,3]``; ``float`` without a known rank."""
    kind = kind_text(type.elem_type)
    return kind if type.shape is None else f"{kind}[{','.join(map(_size_text, type.shape))}]"


def kind_text(elem_type: int) -> str:
    """The name of an element type; ``?`` for none."""
    return _KIND_NAMES.get(elem_type, f"type{elem_type}") if elem_type else "?"


def _size_text(size: int | str | None) -> str:
    if isinstance(size, str):
        return size if WORD.fullmatch(size) else quoted(size)
    return "?" if size is None else str(size)


def read_type(scanner: Scanner) -> ValueType:
    """What :func:`type_text` writes."""
    start = scanner.position
    plain = scanner.accept_pattern(_PLAIN)
    if plain is not None:
        found = _plain_type(plain)
        if found is not None:
            return found
        scanner.position = start  # reading it again tells what is wrong
    elem_type = read_kind(scanner)
    return ValueType(elem_type, _read_shape(scanner))


@lru_cache(maxsize=1 << 14)
def _plain_type(text: str) -> ValueType | None:
    """The type of a text without quotes; None if it is wrong."""
    scanner = Scanner(text, "")
    try:
        found = ValueType(read_kind(scanner), _read_shape(scanner))
    except ModelError:
        return None
    return found if scanner.at_end() else None


def read_kind(scanner: Scanner) -> int:
    """The number of an element type; 0 for ``?``."""
    start = scanner.position
    name = scanner.take(_KIND, "a type")
    if name == "?" or name in _KINDS:
        return _KINDS.get(name, 0)
    raise scanner.error("a type, such as float[N,3]", start)


def _read_shape(scanner: Scanner) -> tuple[int | str | None, ...] | None:
    return tuple(scanner.items(lambda: _read_size(scanner), "]")) if scanner.accept("[") else None


def _read_size(scanner: Scanner) -> int | str | None:
    if scanner.accept("?"):
        return None
    if scanner.keyword() or scanner.sees('"'):
        return scanner.word("a dimension")
    return scanner.integer("a dimension")


# -- declared types ---------------------------------------------------------------------------------


def declared_text(proto: TypeProto | None) -> str:
    """The type of a declaration, also of sequences, optionals and maps; what has no notation, as bytes."""
    if proto is None:
        return "?"
    if not proto.ByteSize():
        return "()"
    try:
        text = _proto_text(proto, 0)
        again = read_declared(Scanner(text, ""))
        if again is not None and message_bytes(again) == message_bytes(proto):
            return text
    except ModelError:
        pass
    return f"raw {message_text(proto)}"


def _proto_text(proto: TypeProto, depth: int) -> str:
    if depth > MAX_TYPE_NESTING:
        raise ModelError("the type is nested too deep")
    kind = proto.WhichOneof("value") or ""
    if kind == "tensor_type":
        return type_text(type_of(proto))
    if kind in ("sequence_type", "optional_type"):
        return f"{kind.removesuffix('_type')}<{_proto_text(getattr(proto, kind).elem_type, depth + 1)}>"
    if kind == "map_type":
        inner = _proto_text(proto.map_type.value_type, depth + 1)
        return f"map<{kind_text(proto.map_type.key_type)}, {inner}>"
    raise ModelError("the type has no notation")


def read_declared(scanner: Scanner, depth: int = 0) -> TypeProto | None:
    """What :func:`declared_text` writes; None for a declaration without a type."""
    if depth > MAX_TYPE_NESTING:
        raise scanner.problem(f"types nest at most {MAX_TYPE_NESTING} deep")
    word = scanner.keyword()
    proto = TypeProto()
    if scanner.accept("("):
        scanner.expect(")")
    elif word in _CONTAINERS:
        scanner.expect(word)
        scanner.expect("<")
        _copy(read_declared(scanner, depth + 1), getattr(proto, f"{word}_type").elem_type)
        scanner.expect(">")
    elif word == "map":
        _read_map(scanner, proto, depth)
    elif scanner.accept_word("raw"):
        return read_message(scanner, TypeProto)
    else:
        type = read_type(scanner)
        if type == UNKNOWN:
            return None
        set_tensor_type(proto.tensor_type, type)
    return proto


def _read_map(scanner: Scanner, proto: TypeProto, depth: int) -> None:
    scanner.expect("map")
    scanner.expect("<")
    proto.map_type.key_type = read_kind(scanner)
    scanner.expect(",")
    _copy(read_declared(scanner, depth + 1), proto.map_type.value_type)
    scanner.expect(">")


def _copy(source: TypeProto | None, target: TypeProto) -> None:
    if source is not None:
        target.CopyFrom(source)
