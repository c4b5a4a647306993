"""Types in the IR text: ``float[N,3]``; ``?`` for an unknown one."""

from __future__ import annotations

import re
from functools import lru_cache

from onnx import TensorProto

from ..errors import ModelError
from ..value_type import ValueType
from .scanner import Scanner
from .words import WORD, quoted

_KINDS = {name.lower(): number for name, number in TensorProto.DataType.items() if number}
_KIND_NAMES = {number: name for name, number in _KINDS.items()}
_KIND = re.compile(r"\?|[a-z][a-z0-9]*")
_PLAIN = re.compile(r'(\?|[a-z][a-z0-9]*)(\[[^\]"\n]*\])?(?=[\s,)=]|$)')


@lru_cache(maxsize=1 << 14)
def type_text(type: ValueType) -> str:
    """``float[N,3]``; ``float`` without a known rank."""
    kind = _KIND_NAMES.get(type.elem_type, f"type{type.elem_type}") if type.elem_type else "?"
    return kind if type.shape is None else f"{kind}[{','.join(map(_size_text, type.shape))}]"


def tensor_type(tensor: TensorProto) -> ValueType:
    """Element type and shape."""
    return ValueType(tensor.data_type, tuple(tensor.dims))


def _size_text(size: int | str | None) -> str:
    if isinstance(size, str):
        return size if WORD.fullmatch(size) else quoted(size)
    return "?" if size is None else str(size)


def read_type(scanner: Scanner) -> ValueType:
    """What :func:`type_text` writes."""
    start, plain = scanner.position, scanner.accept_pattern(_PLAIN)
    if plain is not None:
        try:
            return _plain_type(plain)
        except ModelError:
            scanner.position = start  # reading it again tells what is wrong
    return _read_type(scanner)


@lru_cache(maxsize=1 << 14)
def _plain_type(text: str) -> ValueType:
    return _read_type(Scanner(text, ""))


def _read_type(scanner: Scanner) -> ValueType:
    start = scanner.position
    name = scanner.take(_KIND, "a type")
    if name != "?" and name not in _KINDS:
        raise scanner.error("a type, such as float[N,3]", start)
    shape = tuple(scanner.items(lambda: _read_size(scanner), "]")) if scanner.accept("[") else None
    return ValueType(_KINDS.get(name, 0), shape)


def _read_size(scanner: Scanner) -> int | str | None:
    if scanner.accept("?"):
        return None
    if scanner.keyword() or scanner.sees('"'):
        return scanner.word("a dimension")
    return scanner.integer("a dimension")
