"""A graph while it is read: its values by the names of the text, and its ops until all are known."""

from __future__ import annotations

from onnx import GraphProto, TensorProto

from ..graph import Graph, Op, Value, capture_port
from ..port_graph import Port
from ..value_type import ValueType
from .scope import names_of


class ParsedScope:
    """A graph that is being read.

    Attributes:
        proto: takes what the graph declares; for a function, that within it.
        path: how the text names what is in this graph, see :class:`qc.ir.text.scope.Scope`.
        depth: how many graphs are around.
        values: by the name that the text has for them.
        order: the values in the order in which the text mentions them.
        ops: in the order of the text.
        later: the values that are younger than the others.
        finished: the statements that a graph has once, and has had.
        next_place: where the next op stands, unless it says otherwise.
    """

    def __init__(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> None:
        self.graph = graph
        self.proto = proto
        self.path = path
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.values: dict[str, Value] = {}
        self.order: list[Value] = []
        self.ops: list[Op] = []
        self.later: list[Value] = []
        self.finished: set[str] = set()
        self.next_place = 0
        self._outer = outer
        self._producers: dict[Value, Op] = {}
        self._edges: list[tuple[Op | Value, Op | Value, Port]] = []

    def announce(self, bare: str, type: ValueType) -> Value:
        """A new value of this graph that cannot be read before it is among :attr:`values`."""
        value = Value(self.graph, 0, bare)
        value.type = type
        self.order.append(value)
        return value

    def find(self, name: str) -> Value | None:
        """The value of that name, here or around; one from around is captured."""
        found = self.values.get(name)
        if found is None:
            outside = self.find_outside(name)
            if outside is not None:
                found = self.capture(name, outside)
        return found

    def find_outside(self, name: str) -> Value | None:
        """The value of that name around this graph."""
        return self._outer.find(name) if self._outer is not None else None

    def capture(self, name: str, outside: Value) -> Value:
        """A new value that stands in this graph for one of the enclosing graph."""
        value = self.values[name] = self.announce(outside.name, outside.type)
        value.captured = outside
        return value

    def add_op(self, op: Op, inputs: list[Value | None], results: list[Value | None]) -> None:
        """The next op."""
        self.ops.append(op)
        self._edges += [(value, op, port) for port, value in enumerate(inputs) if value is not None]
        self._edges += [(op, value, port) for port, value in enumerate(results) if value is not None]
        self._producers.update((value, op) for value in results if value is not None)
        self.proto.node.add(input=names_of(inputs), output=names_of(results))

    def add_captures(self, op: Op, inner: ParsedScope) -> None:
        """What a graph of an op captures."""
        for value in inner.order:
            if value.captured is not None:
                self._edges.append((value.captured, op, capture_port(value)))

    def op(self, name: str | int) -> Op | None:
        """The op at that place, or whose result has that name."""
        if isinstance(name, int):
            return self.ops[name] if name < len(self.ops) else None
        value = self.values.get(name)
        return self._producers.get(value) if value is not None else None

    def assemble(self) -> None:
        """Fills the graph, the older values first."""
        graph, later = self.graph, set(self.later)
        for value in (*(value for value in self.order if value not in later), *self.later):
            value.id = graph.model.new_id()
            graph._add_node(value)
            if value.captured is None:
                graph.model.claim_name(value.name)
        for op in self.ops:
            op.id = graph.model.new_id()
            graph._add_node(op)
            if op.name:
                graph.model.claim_name(op.name)
        for source, sink, port in self._edges:
            graph._connect(source, sink, port)


def outline(name: str, tensor: TensorProto) -> TensorProto:
    """An initializer without data; where external ones lie is kept, so that nobody overwrites them."""
    found = TensorProto(name=name, dims=tensor.dims, data_type=tensor.data_type)
    if tensor.data_location == TensorProto.EXTERNAL:
        found.data_location = tensor.data_location
        found.external_data.extend(tensor.external_data)
    return found
