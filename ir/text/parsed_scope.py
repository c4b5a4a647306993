"""A graph while it is read: its values by the names of the text, and its ops until all are known."""

from __future__ import annotations

from typing import Any, NamedTuple

from onnx import AttributeProto, NodeProto, SparseTensorProto, ValueInfoProto

from ..graph import Graph, Op, Value, ValueType
from .carried import Note

DECLARED = ("input", "output", "value_info")


class ParsedOp(NamedTuple):
    """An op with its surroundings.

    Attributes:
        domain: as it is written.
        attributes: in order; those that are graphs without their contents.
        captures: the values of its graphs that capture something from around.
        made: whether a pass made it.
    """

    op: Op
    domain: str
    inputs: list[Value | None]
    results: list[Value | None]
    attributes: list[AttributeProto]
    captures: list[Value]
    made: bool


class ParsedScope:
    """A graph that is being read.

    Attributes:
        path: how the text names what is in this graph, see :class:`qc.ir.text.scope.Scope`.
        depth: how many graphs are around.
        values: by the name that the text has for them.
        order: the values in the order in which the text mentions them.
        ops: in the order of the text.
        initializers: the constants that the model had, and no pass made.
        sparse: the sparse constants.
        inputs, outputs, declarations: what the graph declares.
        later: the values that are younger than the others.
        is_function: whether it is the body of a function.
        has_return: whether its outputs were read.
        next_place: where the next op stands, unless it says otherwise.
        note: what the proto of the graph (or function) carries besides.
        op_notes: what the protos of the ops carry besides, by the place of the op.
    """

    def __init__(self, graph: Graph, outer: ParsedScope | None, path: str) -> None:
        self.graph = graph
        self.path = path
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.values: dict[str, Value] = {}
        self.order: list[Value] = []
        self.ops: list[ParsedOp] = []
        self.initializers: list[Value] = []
        self.sparse: list[SparseTensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.declarations: list[ValueInfoProto] = []
        self.later: list[Value] = []
        self.note: Note[Any] | None = None
        self.is_function = False
        self.has_return = False
        self.next_place = 0
        self.op_notes: dict[int, Note[NodeProto]] = {}
        self._outer = outer
        self._declared: dict[str, dict[str, list[ValueInfoProto]]] = {}
        self._makers: dict[Value, int] = {}

    def add(self, name: str, bare: str, type: ValueType) -> Value:
        """A new value of this graph, by the name of the text and its own name."""
        value = self.values[name] = self.announce(bare, type)
        return value

    def announce(self, bare: str, type: ValueType) -> Value:
        """A new value of this graph that cannot be read yet."""
        value = Value(self.graph, 0, bare)
        value.type = type
        self.order.append(value)
        return value

    def register(self, name: str, value: Value) -> bool:
        """Lets a value be read by that name; whether none could before."""
        return self.values.setdefault(name, value) is value

    def find(self, name: str) -> Value | None:
        """The value of that name, here or around; one from around gets a stand-in."""
        found = self.values.get(name)
        if found is None and self._outer is not None:
            outside = self._outer.find(name)
            if outside is not None:
                found = self.stand_in(name, outside)
        return found

    def find_outside(self, name: str) -> Value | None:
        """The value of that name around this graph."""
        return self._outer.find(name) if self._outer is not None else None

    def stand_in(self, name: str, captured: Value) -> Value:
        """A new stand-in for a value of the enclosing graph."""
        value = self.add(name, captured.name, captured.type)
        value.captured = captured
        return value

    def add_op(self, parsed: ParsedOp) -> None:
        """The next op."""
        self._makers.update((value, len(self.ops)) for value in parsed.results if value is not None)
        self.ops.append(parsed)

    def maker(self, name: str) -> int | None:
        """The place of the op that makes the value of that name."""
        value = self.values.get(name)
        return self._makers.get(value) if value is not None else None

    def declared(self, kind: str) -> dict[str, list[ValueInfoProto]]:
        """The declarations of one of the kinds :data:`DECLARED`, which are complete, by name."""
        found = self._declared.get(kind)
        if found is None:
            found = self._declared[kind] = {}
            infos = {"input": self.inputs, "output": self.outputs, "value_info": self.declarations}[kind]
            for info in infos:
                found.setdefault(info.name, []).append(info)
        return found
