"""What an op is apart from its connections: its kind, its attributes and its constants."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import zip_longest

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value
from qc.ir.tensor_ref import TensorRef

from .wiring import GraphWiring, Read

Kind = tuple[str, str, str]


def kind(op: Op) -> Kind:
    """Domain, type and overload."""
    return op.domain, op.op_type, op.overload


def attributes(op: Op) -> dict[str, bytes]:
    """The attributes by name, sorted, as bytes that are equal if they are; descriptions do not count."""
    found = {}
    for name, proto in sorted(op.attributes.items()):
        if proto.doc_string:
            bare = type(proto)()
            bare.CopyFrom(proto)
            bare.ClearField("doc_string")
            proto = bare
        found[name] = proto.SerializeToString(deterministic=True)
    return found


class Contents:
    """Compares ops and constants; remembers what it read, so that no constant is read twice."""

    def __init__(self) -> None:
        self._data: dict[Value, TensorRef | None] = {}
        self._digests: dict[Value, bytes] = {}

    def data(self, value: Value) -> TensorRef | None:
        """The data of a constant; None for what is computed or fed."""
        if value not in self._data:
            self._data[value] = constant_data(value)
        return self._data[value]

    def is_constant(self, read: Read | None) -> bool:
        """Whether it is a constant that is read."""
        return read is not None and self.data(read.value) is not None

    def equal(self, a: Value, b: Value) -> bool:
        """Whether two constants have one type, one shape and the same bytes."""
        data_a, data_b = self.data(a), self.data(b)
        if data_a is None or data_b is None:
            return data_a is data_b
        if data_a.proto is data_b.proto:
            return True
        return _type_of(data_a) == _type_of(data_b) and self._digest(a) == self._digest(b)

    def same(self, graph_a: GraphWiring, a: Op, graph_b: GraphWiring, b: Op, by_name: bool) -> bool:
        """Whether two ops of one kind have equal attributes and equal constants.

        Args:
            by_name: constants of one name, type and shape count as equal, and one may be computed now.
        """
        if a.attributes.keys() != b.attributes.keys() or attributes(a) != attributes(b):
            return False
        return all(
            self._may_be_same(read_a, read_b, by_name)
            for read_a, read_b in zip_longest(graph_a.reads[a], graph_b.reads[b])
        )

    def fingerprint(self, scope: GraphWiring, op: Op) -> Hashable:
        """Kind, attributes and the contents of the constants."""
        constants = tuple(
            self._digest(read.value) if read is not None and self.is_constant(read) else None
            for read in scope.reads[op]
        )
        return kind(op), tuple(attributes(op).items()), constants

    def outline(self, scope: GraphWiring, op: Op) -> Hashable:
        """Kind, and the shapes of the constants."""
        return kind(op), self.shapes(scope, op)

    def shapes(self, scope: GraphWiring, op: Op) -> tuple[tuple[int, ...] | None, ...]:
        """The shapes of the constants that an op reads, None for other tensors."""
        found = (self.data(read.value) if read is not None else None for read in scope.reads[op])
        return tuple(None if data is None else data.shape for data in found)

    def _may_be_same(self, a: Read | None, b: Read | None, by_name: bool) -> bool:
        """False only for two constants, in one representation, that differ."""
        if a is None or b is None or is_stored(a) != is_stored(b):
            return True
        data_a, data_b = self.data(a.value), self.data(b.value)
        if data_a is None or data_b is None:
            return by_name or data_a is data_b
        if _type_of(data_a) != _type_of(data_b):
            return False
        return (by_name and a.value.name == b.value.name) or self.equal(a.value, b.value)

    def _digest(self, value: Value) -> bytes:
        if value not in self._digests:
            data = self.data(value)
            assert data is not None
            self._digests[value] = data.digest()
        return self._digests[value]


def is_stored(read: Read | None) -> bool:
    """Whether a constant is read whose codes are stored."""
    return read is not None and bool(read.quantizations) and read.quantizations[0].stored


def _type_of(data: TensorRef) -> tuple[int, tuple[int, ...]]:
    return data.data_type, data.shape
