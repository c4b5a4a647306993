"""Attributes in the IR text; the notation tells the exact type, and what has no notation goes along as bytes.

1  1.0  "text"                     integer, float, string
[1, 2]  [1.0]  ["a"]               lists of them; ``ints[]``, ``floats[]`` and ``strings[]`` are empty
tensor "name" float[2] [1.0, 2.0]  a tensor; ``tensors[...]`` for several; see :mod:`.tensors` for its data
sparse int64 [3] (values, indices) a sparse tensor
type float[N]                      a type; ``types[...]`` for several
@slope float                       the attribute ``slope`` of the function around
raw "..."                          anything else, serialized
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto

from .carried import has_more, has_unknown_fields, message_text, read_message
from .scanner import Scanner
from .tensors import TensorPrinter, TensorReader, tensor_type
from .value_types import declared_text, read_declared, read_type, type_text
from .words import INTEGER, quoted, quoted_bytes, single, worded

_A = AttributeProto
GRAPH_TYPES = frozenset({_A.GRAPH, _A.GRAPHS})
_FIELDS = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
_Kind = AttributeProto.AttributeType
_SIMPLE: dict[_Kind, Callable[[Any], str]] = {_A.INT: str, _A.FLOAT: single, _A.STRING: quoted_bytes}
_SIMPLE_LISTS: dict[_Kind, tuple[str, Callable[[Any], str]]] = {
    _A.INTS: ("ints", str),
    _A.FLOATS: ("floats", single),
    _A.STRINGS: ("strings", quoted_bytes),
}
_WORDS = {
    _A.TENSOR: "tensor",
    _A.TENSORS: "tensors",
    _A.SPARSE_TENSOR: "sparse",
    _A.SPARSE_TENSORS: "sparses",
    _A.TYPE_PROTO: "type",
    _A.TYPE_PROTOS: "types",
}
_LISTS = frozenset({*_SIMPLE_LISTS, _A.TENSORS, _A.SPARSE_TENSORS, _A.TYPE_PROTOS})
_WITH_TENSORS = frozenset({_A.TENSOR, _A.TENSORS, _A.SPARSE_TENSOR, _A.SPARSE_TENSORS})
_NAMES = {number: name.lower() for name, number in _A.AttributeType.items()}
_TYPES = {name: number for number, name in _NAMES.items() if number not in GRAPH_TYPES}
_SPARSE = frozenset({"values", "indices", "dims"})


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
        if attribute.type in _WITH_TENSORS:
            return self._text(attribute, owner)
        content = attribute.SerializeToString(deterministic=True)
        text = self._known.get(content)
        if text is None:
            text = self._known[content] = self._text(attribute, owner)
        return text

    def _text(self, attribute: AttributeProto, owner: str) -> str:
        kind, fields = attribute.type, {field.name for field, _ in attribute.ListFields()}
        if not has_unknown_fields(attribute):
            if fields == {"name", "type", "ref_attr_name"}:
                return f"@{worded(attribute.ref_attr_name)} {_NAMES[kind]}"
            said = {"name", "type", _FIELDS.get(kind, "")}
            if fields == said or (kind in _LISTS and fields == said - {_FIELDS[kind]}):
                text = self._value_text(attribute, owner)
                if "nan" not in text or kind not in (_A.FLOAT, _A.FLOATS):
                    return text
        return f"raw {message_text(attribute)}"

    def _value_text(self, attribute: AttributeProto, owner: str) -> str:
        kind = attribute.type
        value = getattr(attribute, _FIELDS[kind])
        if kind in _SIMPLE:
            return _SIMPLE[kind](value)
        if kind in _SIMPLE_LISTS:
            word, write = _SIMPLE_LISTS[kind]
            return f"[{', '.join(map(write, value))}]" if value else f"{word}[]"
        place = f"{worded(attribute.name)} of {owner}"
        if kind not in _LISTS:
            return f"{_WORDS[kind]} {self._item_text(value, place)}"
        items = (self._item_text(item, _element(place, index)) for index, item in enumerate(value))
        return f"{_WORDS[kind]}[{', '.join(items)}]"

    def _item_text(self, item: TensorProto | SparseTensorProto | TypeProto, place: str) -> str:
        if isinstance(item, TensorProto):
            return self.tensor(item, place)
        return self.sparse(item, place) if isinstance(item, SparseTensorProto) else declared_text(item)

    def tensor(self, tensor: TensorProto, place: str) -> str:
        """A tensor with its name and type."""
        name = f"{quoted(tensor.name)} " if tensor.HasField("name") else ""
        data = self._tensors.text(tensor, place)
        return f"{name}{type_text(tensor_type(tensor))}{' ' if data else ''}{data}"

    def sparse(self, sparse: SparseTensorProto, place: str) -> str:
        """A sparse tensor: its shape, values and indices."""
        if has_more(sparse, _SPARSE) or not (sparse.HasField("values") and sparse.HasField("indices")):
            return f"raw {message_text(sparse)}"
        values = self.tensor(sparse.values, _values(place))
        return f"{list(sparse.dims)} ({values}, {self.tensor(sparse.indices, _indices(place))})"


def _element(place: str, index: int) -> str:
    return f"element {index} of {place}"


def _values(place: str) -> str:
    return f"values of {place}"


def _indices(place: str) -> str:
    return f"indices of {place}"


# -- reading ----------------------------------------------------------------------------------------


class AttributeReader:
    """Reads what an :class:`AttributePrinter` wrote."""

    def __init__(self, scanner: Scanner, tensors: TensorReader) -> None:
        self._scanner = scanner
        self._tensors = tensors
        self._kinds = {word: kind for kind, word in _WORDS.items()}

    def read(self, name: str, owner: str) -> AttributeProto:
        """The attribute of that name, behind its equals sign."""
        scanner, start = self._scanner, self._scanner.position
        if scanner.accept_word("raw"):
            return self._read_raw(name, start)
        attribute = AttributeProto(name=name)
        if scanner.accept("@"):
            attribute.ref_attr_name = scanner.word("the name of an attribute")
            attribute.type = self._read_kind()
            return attribute
        attribute.type, value = self._read_value(f"{worded(name)} of {owner}")
        field = _FIELDS[attribute.type]
        if attribute.type in _LISTS:
            getattr(attribute, field).extend(value)
        elif attribute.type in _SIMPLE:
            setattr(attribute, field, value)
        else:
            getattr(attribute, field).CopyFrom(value)
        return attribute

    def _read_raw(self, name: str, start: int) -> AttributeProto:
        attribute = read_message(self._scanner, AttributeProto)
        if attribute.name != name or attribute.type in GRAPH_TYPES:
            raise self._scanner.problem(f"these are not the bytes of the attribute '{name}'", start)
        return attribute

    def _read_kind(self) -> _Kind:
        start = self._scanner.position
        kind = _TYPES.get(self._scanner.keyword())
        if kind is None:
            raise self._scanner.error("the type of an attribute, such as float or ints", start)
        self._scanner.expect(_NAMES[kind])
        return kind

    def _read_value(self, place: str) -> tuple[_Kind, Any]:
        scanner = self._scanner
        if scanner.accept("["):
            return self._read_list()
        if scanner.sees('"') or scanner.sees('x"'):
            return _A.STRING, scanner.byte_string("a string")
        word = scanner.keyword()
        if word in self._kinds:
            scanner.expect(word)
            return self._kinds[word], self._read_items(self._kinds[word], place)
        for kind, (name, _) in _SIMPLE_LISTS.items():
            if word == name:
                scanner.expect(f"{name}[")
                scanner.expect("]")
                return kind, ()
        if scanner.looks_at(INTEGER):
            return _A.INT, scanner.integer()
        return _A.FLOAT, scanner.real("the value of an attribute")

    def _read_list(self) -> tuple[_Kind, Any]:
        scanner = self._scanner
        if scanner.sees('"') or scanner.sees('x"'):
            return _A.STRINGS, scanner.items(lambda: scanner.byte_string("a string"), "]")
        if scanner.looks_at(INTEGER):
            return _A.INTS, scanner.items(scanner.integer, "]")
        return _A.FLOATS, scanner.items(lambda: scanner.real("a number or a string"), "]")

    def _read_items(self, kind: _Kind, place: str) -> Any:
        if kind not in _LISTS:
            return self._read_item(kind, place)
        self._scanner.expect("[")
        found: list[Any] = []
        while not self._scanner.accept("]"):
            if found:
                self._scanner.expect(",")
            found.append(self._read_item(kind, _element(place, len(found))))
        return found

    def _read_item(self, kind: _Kind, place: str) -> TensorProto | SparseTensorProto | TypeProto:
        if kind in (_A.TENSOR, _A.TENSORS):
            return self.tensor(place)
        if kind in (_A.SPARSE_TENSOR, _A.SPARSE_TENSORS):
            return self.sparse(place)
        return read_declared(self._scanner) or TypeProto()

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
        if scanner.accept_word("raw"):
            return read_message(scanner, SparseTensorProto)
        scanner.expect("[")
        dims = scanner.items(scanner.integer, "]")
        scanner.expect("(")
        values = self.tensor(_values(place))
        scanner.expect(",")
        indices = self.tensor(_indices(place))
        scanner.expect(")")
        return SparseTensorProto(dims=dims, values=values, indices=indices)
