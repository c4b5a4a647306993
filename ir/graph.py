"""The graph of the IR: Op and Value nodes in a bipartite networkx MultiDiGraph whose edge keys are ports.

The edges are the only truth about what is connected: ``op -> value`` (definition) and ``value -> op``
(use) carry the port number as their key. What a subgraph of an op captures is a use by that op; its key is
the :func:`capture_port` of the captured value inside. Ops, values and graphs are read as they are; every
change goes through :class:`qc.ir.rewriter.Rewriter`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx
from onnx import AttributeProto, helper

from .analysis import STRUCTURE, Analyses, analysis
from .context import ModelContext
from .port_graph import CycleError, Port, PortGraph, Ports, in_order
from .tensor_ref import TensorRef
from .value_type import FLOAT_TYPES, UNKNOWN, ValueType


class Value:
    """A tensor of the graph. Identity is the object (and its integer ``id``); the name is an attribute.

    Attributes:
        const: the data, when the value is an initializer.
        float_const: that of the float model, where a pass gave the quantized one other numbers.
        captured: the value of the enclosing graph that this one captures inside a subgraph.
    """

    __slots__ = ("_name", "captured", "const", "float_const", "graph", "id", "type")

    def __init__(self, graph: Graph, id: int, name: str) -> None:
        self.graph = graph
        self.id = id
        self._name = name
        self.type: ValueType = UNKNOWN
        self.const: TensorRef | None = None
        self.float_const: TensorRef | None = None
        self.captured: Value | None = None

    @property
    def name(self) -> str:
        """The name; what captures a value has its name, since ONNX captures by name."""
        return self._name if self.captured is None else self.captured.name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def original(self) -> Value:
        """The value that one in a subgraph captures, of whichever enclosing graph; else itself."""
        return self if self.captured is None else self.captured.original

    @property
    def is_float(self) -> bool:
        """Whether the element type is float32, float16 or bfloat16."""
        return self.original.type.elem_type in FLOAT_TYPES

    @property
    def producer(self) -> Op | None:
        """The op that computes this; None for inputs, initializers and captured values."""
        return next((self.graph._ops[op_id] for op_id in self.graph.nx.sources(self.id)), None)

    @property
    def uses(self) -> list[Use]:
        """All readings by ops of this graph, ordered by op and port. Graph outputs are not among them."""
        sinks, ops = self.graph.nx.sinks(self.id), self.graph._ops
        users = sorted((ops[op_id] for op_id in sorted(sinks)), key=attrgetter("position"))
        return [Use(op, port) for op in users for port in in_order(sinks[op.id])]

    @property
    def capturing(self) -> list[Op]:
        """The ops that read this inside one of their subgraphs, in the order of :attr:`uses`."""
        if not any(self.graph._ops[op_id].subgraphs for op_id in self.graph.nx.sinks(self.id)):
            return []
        return list(dict.fromkeys(use.op for use in self.uses if not isinstance(use.port, int)))

    @property
    def is_input(self) -> bool:
        """Whether this is an input of its graph."""
        return self in self.graph._input_set

    @property
    def is_output(self) -> bool:
        """Whether this is an output of its graph."""
        return self in self.graph._output_set

    @property
    def is_read(self) -> bool:
        """Whether an op reads this or it is an output of its graph."""
        return bool(self.graph.nx.sinks(self.id)) or self.is_output

    @property
    def is_read_once(self) -> bool:
        """Whether one input of one op reads this, and nothing outside its graph does."""
        sinks = self.graph.nx.sinks(self.id)
        return len(sinks) == 1 and not self.is_output and all(len(one) == 1 for one in sinks.values())

    @property
    def only_use(self) -> Use | None:
        """The use, if this :attr:`is_read_once`."""
        return self.uses[0] if self.is_read_once else None

    def __repr__(self) -> str:
        return f"%{self.name}"


_NOTHING: Mapping[str, Any] = MappingProxyType({})  # most ops have no attributes, and need no dictionary


class Op:
    """An operator of the graph.

    Attributes:
        attributes: by name, in the order of the model; graph attributes are in ``subgraphs`` instead.
        subgraphs: nested graphs by attribute name.
        num_inputs, num_outputs: arity, counting inputs and outputs that are left out.
        proto: the node as it stood in the model; None for an op that a pass made.
        position: sort key that keeps the order of the model where the data flow leaves a choice.
        provenance: the rewriting rule and the names of the ops that this op came from.
    """

    __slots__ = (
        "attributes",
        "domain",
        "graph",
        "id",
        "name",
        "num_inputs",
        "num_outputs",
        "op_type",
        "overload",
        "position",
        "proto",
        "provenance",
        "subgraphs",
    )

    def __init__(self, graph: Graph, id: int, op_type: str, domain: str = "", name: str = "") -> None:
        self.graph = graph
        self.id = id
        self.op_type = sys.intern(op_type)
        self.domain = "" if domain == "ai.onnx" else domain
        self.overload = ""
        self.name = name
        self.attributes: Mapping[str, AttributeProto] = _NOTHING
        self.subgraphs: Mapping[str, Graph] = _NOTHING
        self.num_inputs = 0
        self.num_outputs = 0
        self.proto: onnx.NodeProto | None = None
        self.position: tuple[int, ...] = ()
        self.provenance: tuple[str, ...] = ()

    def is_type(self, *op_types: str) -> bool:
        """Whether this is one of the given ops of the standard ONNX domain."""
        return not self.domain and self.op_type in op_types

    def attribute(self, name: str, default: Any = None) -> Any:
        """The Python value of an attribute (str for strings, TensorProto for tensors), or ``default``.

        That is also the answer for one that refers to an attribute of the enclosing function, which has a
        value only where that is called; see :meth:`refers`.
        """
        proto = self.attributes.get(name)
        if proto is None or proto.ref_attr_name:
            return default
        value = helper.get_attribute_value(proto)
        if proto.type == AttributeProto.STRING:
            return value.decode("utf-8", "replace")
        if proto.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            return list(value)
        if proto.type == AttributeProto.STRINGS:
            return [text.decode("utf-8", "replace") for text in value]
        return value

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The inputs by port; None for one that is left out. Captures are not among them."""
        return self.graph._by_port(self.graph.nx.sources(self.id), self.num_inputs)

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """The outputs by port; None for one that is left out."""
        return self.graph._by_port(self.graph.nx.sinks(self.id), self.num_outputs)

    @property
    def captures(self) -> list[Value]:
        """The values that the subgraphs capture from this graph, in the order of the captures."""
        if not self.subgraphs:
            return []
        captures = {
            port: self.graph._values[value_id]
            for value_id, ports in self.graph.nx.sources(self.id).items()
            for port in ports
            if not isinstance(port, int)
        }
        return [captures[port] for port in sorted(captures)]

    @property
    def only_use(self) -> Use | None:
        """The use of the first output, if that :attr:`Value.is_read_once`."""
        first = self.outputs[0]
        return first.only_use if first is not None else None

    def refers(self, name: str) -> bool:
        """Whether an attribute refers to one of the enclosing function."""
        return name in self.attributes and bool(self.attributes[name].ref_attr_name)

    @property
    def region(self) -> Region | None:
        """The region that claimed this op."""
        return self.graph.regions.get(self)

    @property
    def label(self) -> str:
        """How messages name this op: its name, or its type and first output when it has none."""
        if self.name:
            return f"{self.op_type} '{self.name}'"
        first = next((value for value in self.outputs if value is not None), None)
        return f"{self.op_type} of '{first.name}'" if first is not None else self.op_type

    def __repr__(self) -> str:
        return f"<{self.label if self in self.graph else self.op_type}>"  # or erased


class Use(NamedTuple):
    """One reading of a value: input ``port`` of ``op``, or a capture by one of its subgraphs."""

    op: Op
    port: Port


class Graph:
    """One scope: a main graph, a subgraph of an op, or the body of a local function.

    Attributes:
        epoch: how often the ops, values and edges of this graph have changed.
        regions: the regions by the ops that they claimed.
        nx: the networkx graph of the ids, to be read only; :meth:`payload` tells what an id stands for.
    """

    def __init__(self, model: ModelContext, name: str, parent: Op | None = None) -> None:
        self.model = model
        self.name = name
        self.parent = parent
        self.proto: onnx.GraphProto | onnx.FunctionProto | None = None
        self.epoch = 0
        self.regions: dict[Op, Region] = {}
        self.nx = PortGraph()
        self._values: dict[int, Value] = {}
        self._ops: dict[int, Op] = {}
        self._inputs: tuple[Value, ...] = ()
        self._outputs: tuple[Value | None, ...] = ()
        self._input_set: frozenset[Value] = frozenset()
        self._output_set: frozenset[Value | None] = frozenset()

    @property
    def analyses(self) -> Analyses:
        """What was computed from the graphs of the model and still holds."""
        return self.model.analyses

    def __contains__(self, node: Op | Value) -> bool:
        """Whether an op or a value is in this graph, from which it may have been erased."""
        return node.id in self.nx

    def payload(self, id: int) -> Op | Value:
        """The op or value of this graph with that id."""
        return self._ops.get(id) or self._values[id]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self._inputs

    @inputs.setter
    def inputs(self, values: Iterable[Value]) -> None:
        self._inputs = tuple(values)
        self._input_set = frozenset(self._inputs)
        self.epoch += 1

    @property
    def outputs(self) -> tuple[Value | None, ...]:
        """The outputs, in order; None for one without a name."""
        return self._outputs

    @outputs.setter
    def outputs(self, values: Iterable[Value | None]) -> None:
        self._outputs = tuple(values)
        self._output_set = frozenset(self._outputs)
        self.epoch += 1

    def values(self) -> list[Value]:
        """All values, in the order in which they were created."""
        return [self._values[id] for id in sorted(self._values)]  # a rollback puts nodes back at the end

    def ops(self) -> list[Op]:
        """All ops in topological order, as close to the model's order as the data flow allows."""
        return list(topological_order(self))

    def _by_port(self, values: Mapping[int, Ports], count: int) -> tuple[Value | None, ...]:
        found: list[Value | None] = [None] * count
        for value_id, ports in values.items():
            for port in ports:
                if isinstance(port, int):
                    found[port] = self._values[value_id]
        return tuple(found)

    def value_named(self, name: str) -> Value | None:
        """The value of that name in this scope."""
        return next((value for value in self.values() if value.name == name), None)

    def walk(self) -> Iterator[Graph]:
        """This graph and all graphs nested in it, outer before inner."""
        pending = [self]
        while pending:
            graph = pending.pop()
            yield graph
            pending.extend(reversed([sub for op in graph.ops() for sub in op.subgraphs.values()]))

    # -- changing: for the lifter and the Rewriter only ------------------------------------------------

    def _add_node(self, payload: Op | Value) -> None:
        self.nx.add_node(payload.id)
        kept: dict[int, Any] = self._ops if isinstance(payload, Op) else self._values
        kept[payload.id] = payload
        self.epoch += 1

    def _remove_node(self, payload: Op | Value) -> None:
        self.nx.remove_node(payload.id)
        kept: dict[int, Any] = self._ops if isinstance(payload, Op) else self._values
        del kept[payload.id]
        self.epoch += 1

    def _connect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        self.nx.add_edge(source.id, sink.id, port)
        self.epoch += 1

    def _disconnect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        self.nx.remove_edge(source.id, sink.id, port)
        self.epoch += 1

    def _redirect(self, uses: Iterable[Use], old: Value, new: Value) -> None:
        for op, port in uses:
            self.nx.add_edge(new.id, op.id, port)
            self.nx.remove_edge(old.id, op.id, port)
        self.epoch += 1


def capture_port(inner: Value) -> Port:
    """The key of the edge from what ``inner`` captures to the op whose subgraph it is in."""
    return ("capture", inner.id)


@analysis(STRUCTURE, local=True)
def topological_order(graph: Graph) -> tuple[Op, ...]:
    """The ops in topological order, the first by position and id; CycleError if there is none."""
    ops = graph._ops
    order = graph.nx.ordered({op.id: op.position for op in ops.values()})
    if len(order) < len(ops):
        reached = set(order)
        first = next(op.label for op in ops.values() if op.id not in reached)
        raise CycleError(f"the graph has a cycle through {first}")
    return tuple(ops[op_id] for op_id in order)


@dataclass(frozen=True, eq=False)
class Region:
    """A set of ops of one graph, usually a matched supergroup, that counts as a single operator.

    Attributes:
        name: the supergroup, for instance ``layer_norm``.
        ops: in topological order; the last one produces the region's result.
        captures: the values and constants that the pattern named.
    """

    name: str
    graph: Graph
    ops: tuple[Op, ...]
    captures: dict[str, Value] = field(default_factory=dict)

    @property
    def root(self) -> Op:
        return self.ops[-1]

    def is_inner(self, value: Value) -> bool:
        """Whether ``value`` has its producer and all its users inside, so that nothing outside can see it."""
        is_outer = value.producer not in self.ops or value.is_output
        return not is_outer and all(use.op in self.ops for use in value.uses)

    def __str__(self) -> str:
        return f"{self.name} ({len(self.ops)} ops ending in {self.root.label})"
