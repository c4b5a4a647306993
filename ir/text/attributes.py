"""Attributes in the IR text; the notation tells the exact type, and what has none is all residue,
which stands before the value if there is one.

1  1.0  "text"                     integer, float, string
[1, 2]  [1.0]  ["a"]               lists of them; ``ints[]``, ``floats[]`` and ``strings[]`` are empty
tensor "name" float[2] [1.0, 2.0]  a tensor; ``tensors[...]`` for several; see :mod:`.tensors` for its data
sparse [3] (values, indices)       a sparse tensor; ``sparses[...]`` for several
@slope float                       the attribute ``slope`` of the function around
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from onnx import AttributeProto, SparseTensorProto, TensorProto

from ..onnx.protos import GRAPH_TYPES
from .residue import message_bytes, read_residue, residue
from .scanner import Scanner
from .tensors import TensorPrinter, TensorReader
from .value_types import read_type, tensor_type, type_text
from .words import INTEGER, quoted, quoted_bytes, single, worded

_A = AttributeProto
_Kind = AttributeProto.AttributeType


class _Notation(NamedTuple):
    """How a type of attributes is written: its field, a word before it, what writes a number or string."""

    field: str
    word: str
    is_list: bool
    write: Callable[[Any], str] | None


_NOTATIONS: dict[_Kind, _Notation] = {
    _A.INT: _Notation("i", "", False, str),
    _A.FLOAT: _Notation("f", "", False, single),
    _A.STRING: _Notation("s", "", False, quoted_bytes),
    _A.INTS: _Notation("ints", "ints", True, str),
    _A.FLOATS: _Notation("floats", "floats", True, single),
    _A.STRINGS: _Notation("strings", "strings", True, quoted_bytes),
    _A.TENSOR: _Notation("t", "tensor", False, None),
    _A.TENSORS: _Notation("tensors", "tensors", True, None),
    _A.SPARSE_TENSOR: _Notation("sparse_tensor", "sparse", False, None),
    _A.SPARSE_TENSORS: _Notation("sparse_tensors", "sparses", True, None),
}
_BY_WORD = {notation.word: kind for kind, notation in _NOTATIONS.items() if notation.word}
_LISTS = {_A.INT: _A.INTS, _A.FLOAT: _A.FLOATS, _A.STRING: _A.STRINGS}
_TYPES = {name.lower(): number for name, number in _A.AttributeType.items()}
_PARTS: tuple[Literal["values", "indices"], ...] = ("values", "indices")


class AttributePrinter:
    """Writes the values of attributes, except graphs."""

    def __init__(self, tensors: TensorPrinter) -> None:
        self._tensors = tensors
        self._known: dict[bytes, str] = {}  # large models repeat few attributes over and over

    def text(self, attribute: AttributeProto, owner: str) -> str:
        """The value of an attribute.

        Args:
            owner: how the text names the op (or function) that has it.
        """
        notation = _NOTATIONS.get(attribute.type)
        if notation is not None and notation.write is None:
            return self._text(attribute, notation, owner)
        content = message_bytes(attribute)
        if content not in self._known:
            self._known[content] = self._text(attribute, notation, owner)
        return self._known[content]

    def _text(self, attribute: AttributeProto, notation: _Notation | None, owner: str) -> str:
        if attribute.ref_attr_name and attribute.type in _TYPES.values():
            type = _A.AttributeType.Name(attribute.type).lower()
            text, shown = f"@{worded(attribute.ref_attr_name)} {type}", "ref_attr_name"
        elif notation is not None and (notation.is_list or attribute.HasField(notation.field)):  # type: ignore[arg-type]
            text, shown = self._value_text(attribute, notation, owner), notation.field
        else:
            text = ""
        rest = residue(attribute, {"name", "type", shown} if text else {"name"})
        return f"{rest} {text}".strip()

    def _value_text(self, attribute: AttributeProto, notation: _Notation, owner: str) -> str:
        """The value in its notation; empty if that would lose something."""
        value, place = getattr(attribute, notation.field), f"{worded(attribute.name)} of {owner}"
        values = value if notation.is_list else [value]
        try:
            if notation.write is not None:
                items = list(map(notation.write, values))
            elif notation.is_list:
                items = [self._item_text(item, f"element {i} of {place}") for i, item in enumerate(value)]
            else:
                items = [self._item_text(value, place)]
        except UnicodeDecodeError:
            return ""
        if notation.write is not None and "nan" in items:  # which stands for many
            return ""
        text = ", ".join(items)
        if not notation.is_list:
            return f"{notation.word} {text}".lstrip()
        return f"[{text}]" if notation.write and items else f"{notation.word}[{text}]"

    def _item_text(self, item: TensorProto | SparseTensorProto, place: str) -> str:
        return self.tensor(item, place) if isinstance(item, TensorProto) else self.sparse(item, place)

    def tensor(self, tensor: TensorProto, place: str) -> str:
        """A tensor with its name and type."""
        name = f"{quoted(tensor.name)} " if tensor.HasField("name") else ""
        return f"{name}{type_text(tensor_type(tensor))} {self._tensors.text(tensor, place)}".rstrip()

    def sparse(self, sparse: SparseTensorProto, place: str) -> str:
        """A sparse tensor: its shape, values and indices."""
        parts = [self.tensor(getattr(sparse, part), f"{part} of {place}") for part in _PARTS]
        missing: dict[str, None] = {part: None for part in _PARTS if not sparse.HasField(part)}
        rest = residue(sparse, {"dims", *_PARTS} - missing.keys(), missing)
        return f"{list(sparse.dims)} ({', '.join(parts)}){rest}"


class AttributeReader:
    """Reads what an :class:`AttributePrinter` wrote."""

    def __init__(self, scanner: Scanner, tensors: TensorReader) -> None:
        self._scanner = scanner
        self._tensors = tensors

    def read(self, name: str, owner: str) -> AttributeProto:
        """The attribute of that name, behind its equals sign."""
        scanner, start, attribute = self._scanner, self._scanner.position, AttributeProto(name=name)
        read_residue(scanner, attribute, {"name"})
        if scanner.accept("@"):
            attribute.ref_attr_name = scanner.word("the name of an attribute")
            attribute.type = self._read_type()
        elif scanner.position == start or not any(map(scanner.sees, ",}>")):
            attribute.type, value = self._read_value(f"{worded(name)} of {owner}")
            notation = _NOTATIONS[attribute.type]
            field = getattr(attribute, notation.field)
            if notation.is_list:
                field.extend(value)
            elif notation.write is None:
                field.CopyFrom(value)
            else:
                setattr(attribute, notation.field, value)
        if attribute.type in GRAPH_TYPES:
            raise scanner.problem(f"the attribute '{name}' is a graph in disguise", start)
        return attribute

    def _read_type(self) -> _Kind:
        name = self._scanner.keyword()
        if name not in _TYPES:
            raise self._scanner.error("the type of an attribute, such as float or ints")
        self._scanner.expect(name)
        return _TYPES[name]

    def _read_value(self, place: str) -> tuple[_Kind, Any]:
        scanner, word = self._scanner, self._scanner.keyword()
        if word in _BY_WORD:
            scanner.expect(word)
            return _BY_WORD[word], self._read_tensors(_BY_WORD[word], place)
        if scanner.accept("["):
            kind, read = self._reader("a number or a string")
            return _LISTS[kind], scanner.items(read, "]")
        kind, read = self._reader("the value of an attribute")
        return kind, read()

    def _reader(self, what: str) -> tuple[_Kind, Callable[[], Any]]:
        """The type of the number or string that comes next, and what reads it."""
        scanner = self._scanner
        if scanner.sees('"'):
            return _A.STRING, lambda: scanner.string("a string").encode()
        if scanner.looks_at(INTEGER):
            return _A.INT, scanner.integer
        return _A.FLOAT, lambda: scanner.real(what)

    def _read_tensors(self, kind: _Kind, place: str) -> Any:
        read = self.sparse if kind in (_A.SPARSE_TENSOR, _A.SPARSE_TENSORS) else self.tensor
        if not _NOTATIONS[kind].is_list:
            return read(place)
        self._scanner.expect("[")
        if _NOTATIONS[kind].write is not None:
            self._scanner.expect("]")
            return ()
        count = itertools.count()
        return self._scanner.items(lambda: read(f"element {next(count)} of {place}"), "]")

    def tensor(self, place: str) -> TensorProto:
        """A tensor with its name and type."""
        scanner = self._scanner
        name = scanner.string("the name of a tensor") if scanner.sees('"') else None
        tensor = self._tensors.read(read_type(scanner), place)
        if name is not None and not tensor.HasField("name"):
            tensor.name = name
        return tensor

    def sparse(self, place: str) -> SparseTensorProto:
        """A sparse tensor."""
        scanner = self._scanner
        scanner.expect("[")
        sparse = SparseTensorProto(dims=scanner.items(scanner.integer, "]"))
        scanner.expect("(")
        sparse.values.CopyFrom(self.tensor(f"values of {place}"))
        scanner.expect(",")
        sparse.indices.CopyFrom(self.tensor(f"indices of {place}"))
        scanner.expect(")")
        read_residue(scanner, sparse, {"dims"})
        return sparse
