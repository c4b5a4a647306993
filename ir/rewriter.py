"""The only way to change a graph: everything that can be done to ops and values, within numbered actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import helper

from .analysis import CONSTANTS, STRUCTURE, TYPES
from .base.garbage import without_collections
from .graph import Graph, Op, Use, Value, capture_port
from .journal import REWRITE, Remark
from .model import Model
from .port_graph import Port
from .quant_table import Site
from .tensor_ref import TensorRef
from .transaction import Rewrite
from .value_type import UNKNOWN, ValueType

_STRUCTURE = (STRUCTURE,)
_ASPECTS_OF_VALUE = (STRUCTURE, TYPES, CONSTANTS)


class Rewriter:
    """Edits the graphs of one model.

    Edits belong to an action: ``with rewriter.action("rule", op): ...`` numbers it, gives new ops their
    provenance and position, and takes all its edits back when an exception leaves the block.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._transaction = model.transaction

    @contextmanager
    def action(self, rule: str, subject: Op | Value, detail: str = "") -> Iterator[Remark]:
        """Opens an action of a rewriting rule on an op or value; ``detail`` says what it does there."""
        transaction = self._transaction
        if transaction.rewrite is not None:
            raise RuntimeError("actions do not nest")
        label = subject.label if isinstance(subject, Op) else f"'{subject.name}'"
        reason = f"{rule}: {detail}" if detail else rule
        with transaction.action(Remark(REWRITE, subject, label, reason)) as remark:
            anchor = subject if isinstance(subject, Op) else subject.producer
            transaction.rewrite = Rewrite(remark, anchor)
            try:
                yield remark
            finally:
                transaction.rewrite = None

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A block whose edits are all taken back at its end: lowering edits, emits, and leaves no trace."""
        with self._transaction.trial(), without_collections():
            yield

    # -- new nodes ----------------------------------------------------------------------------------

    def add_value(self, graph: Graph, name: str, type: ValueType = UNKNOWN) -> Value:
        """A new value; its name is made unique from ``name``."""
        value = Value(graph, self.model.new_id(), self.model.names.free(name))
        value.type = type
        self._add(value)
        return value

    def add_constant(self, graph: Graph, data: np.ndarray | TensorRef, name: str) -> Value:
        """A new initializer."""
        const = data if isinstance(data, TensorRef) else TensorRef.from_array(np.asarray(data))
        value = self.add_value(graph, name, ValueType(const.data_type, const.shape))
        self._transaction.set((CONSTANTS,), value, "const", const)
        return value

    def add_defaults(self, graph: Graph, constants: Iterable[Value]) -> None:
        """Makes constants inputs with a default, which a caller may override by feeding them."""
        self._set(graph, "inputs", [*graph.inputs, *constants])

    def capture(self, graph: Graph, value: Value) -> Value:
        """A new value inside ``graph`` that captures one of the graph directly around it.

        What has the same name inside gets another one.
        """
        owner = graph.parent
        if owner is None or value.graph is not owner.graph:
            raise ValueError(f"'{value.name}' is not a value of the graph around '{graph.name}'")
        inner = Value(graph, self.model.new_id(), value.name)
        inner.type, inner.captured = value.type, value
        self._transaction.change(_ASPECTS_OF_VALUE, (graph._add_node, inner), (graph._remove_node, inner))
        self._connect(value, owner, capture_port(inner))
        self._unhide(value)
        return inner

    def fix_default(self, value: Value) -> None:
        """Makes an input with a default a plain constant, which nobody can override any more."""
        self._set(value.graph, "inputs", [given for given in value.graph.inputs if given is not value])

    def add_op(
        self,
        graph: Graph,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | str | None],
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
        name: str | None = None,
    ) -> Op:
        """A new op. Outputs are values without a producer, name hints for new values, or None for none.

        Attribute values are what ``onnx.helper.make_attribute`` takes; None leaves an attribute out.
        """
        hints = (one if isinstance(one, str) else one.name for one in outputs if one is not None)
        hint = name or next(hints, op_type)
        op = Op(graph, self.model.new_id(), op_type, domain, self.model.names.free(f"{hint}/{op_type}"))
        op.attributes = {
            key: helper.make_attribute(key, value)
            for key, value in (attributes or {}).items()
            if value is not None
        }
        op.num_inputs, op.num_outputs = len(inputs), len(outputs)
        rewrite = self._transaction.rewrite
        producers = (value.producer for value in inputs if value is not None)
        anchor = (rewrite.anchor if rewrite else None) or next(filter(None, producers), None)
        op.position = (*(anchor.position if anchor else (-1,)), op.id)
        if rewrite is not None:
            op.provenance = (rewrite.remark.rule, rewrite.remark.subject)
        self._add(op)  # undone, it takes its edges away as well
        for port, value in enumerate(inputs):
            if value is not None:
                graph._connect(value, op, port)
        for port, output in enumerate(outputs):
            result = self.add_value(graph, output) if isinstance(output, str) else output
            if result is not None:
                graph._connect(op, result, port)
        return op

    def add_body(self, op: Op, key: str, body: Graph) -> None:
        """Gives an op a body, which was made for it and has an interface."""
        self._set(op, "subgraphs", {**op.subgraphs, key: body})

    # -- edges --------------------------------------------------------------------------------------

    def set_input(self, op: Op, port: int, value: Value | None) -> None:
        """Makes ``value`` the input ``port`` of ``op``; None leaves the input out."""
        if port >= op.num_inputs:
            self._set(op, "num_inputs", port + 1)
        old = op.inputs[port]
        if old is not None:
            self._disconnect(old, op, port)
        if value is not None:
            self._connect(value, op, port)
        if old is not None and value is not None:
            self._replace(old, value)
            self.model.quant.move(Site(old, op, port), Site(value, op, port))
        elif old is not None and self.model.quant.get(Site(old, op, port)) is not None:
            self.model.quant.remove(Site(old, op, port), "the input was left out")

    def replace_uses(
        self,
        old: Value,
        new: Value,
        where: Callable[[Use], bool] | None = None,
        outputs: bool = True,
    ) -> None:
        """Lets every user of ``old``, or those that ``where`` accepts, read ``new`` instead.

        The quantizers of these uses move along. With ``outputs``, a graph output moves too and keeps its name
        (the two values swap names), and so does the quantizer of ``old``. An output that is a graph input
        stays: it cannot give its name away.
        """
        if new is old:
            return
        graph, quant = old.graph, self.model.quant
        uses = [use for use in old.uses if where is None or where(use)]
        redirect = graph._redirect
        self._transaction.change(_STRUCTURE, (redirect, uses, old, new), (redirect, uses, new, old))
        self._replace(old, new)
        for op, port in uses if quant.touches(old) else ():
            if isinstance(port, int):
                quant.move(Site(old, op, port), Site(new, op, port))
        captures = {use.port: use.op for use in uses if not isinstance(use.port, int)}
        for op in dict.fromkeys(captures.values()):
            for inner in (value for nested in op.subgraphs.values() for value in nested.values()):
                if capture_port(inner) in captures:
                    self._set(inner, "captured", new)
        if outputs and old.is_output and not old.is_input:
            self._set(graph, "outputs", [new if output is old else output for output in graph.outputs])
            self.swap_names(old, new)
        if captures:
            self._unhide(new)
        if outputs:
            quant.move(Site(old), Site(new))

    def swap_names(self, a: Value, b: Value) -> None:
        """Exchanges the names of two values of one graph.

        Raises:
            ValueError: one of them is captured from an enclosing graph, where its name is given.
        """
        for value in (a, b):
            if value.captured is not None:
                raise ValueError(f"'{value.name}' has its name from an enclosing graph")
        first, second = a.name, b.name
        self._set(a, "name", second)
        self._set(b, "name", first)
        self._unhide(a)
        self._unhide(b)

    def rename(self, value: Value, hint: str) -> None:
        """Gives a value that is no interface of the model a name made unique from ``hint``."""
        self._set(value, "name", self._fresh_name(hint))

    def _unhide(self, value: Value) -> None:
        """Renames the values of subgraphs that have the name of ``value`` where it is captured."""
        for op in value.capturing:
            for graph in (inner for nested in op.subgraphs.values() for inner in nested.walk()):
                values = graph.values()
                if any(other.original is value.original for other in values):
                    for other in values:
                        if other.captured is None and other.name == value.name:
                            self._set(other, "name", self._fresh_name(other.name))

    # -- removal ------------------------------------------------------------------------------------

    def erase_op(self, op: Op) -> None:
        """Removes an op, its outputs, and the initializers and captured values that nothing else reads.

        Raises:
            ValueError: an output is still read or is a graph output.
        """
        graph = op.graph
        inputs = [*op.inputs, *op.captures]
        for value in op.outputs:
            if value is not None and (value.uses or value.is_output):
                raise ValueError(f"{op.label} cannot be erased: '{value.name}' is still read")
        self._remove_quantizers(op)
        for inner in (inner for body in op.subgraphs.values() for inner in body.walk()):
            for value in inner.values():
                self._remove_quantizers(value)
        for port, value in enumerate(op.outputs):
            if value is not None:
                self._disconnect(op, value, port)
                self._remove_value(value)
        for source, _, edge_port in list(graph.nx.in_edges(op.id, keys=True)):
            self._disconnect(graph.payload(source), op, edge_port)
        self._transaction.change(_STRUCTURE, (graph._remove_node, op), (graph._add_node, op))
        for value in inputs:
            if value is not None:
                self.drop_unread(value)

    def drop_unread(self, value: Value) -> None:
        """Removes an initializer, or a captured value, that nothing reads.

        With the last that captures an initializer, the initializer goes too. Anything else is left alone.
        """
        current: Value | None = value
        while current is not None and self._is_unread(current):
            outer, owner = current.captured, current.graph.parent
            if outer is not None and owner is not None:
                self._disconnect(outer, owner, capture_port(current))
            elif current.is_input:
                self.fix_default(current)
            self._remove_value(current)
            current = outer

    def erase_unread(self, value: Value | None) -> None:
        """Removes an initializer that nothing reads, or the op that made a value and what that alone read."""
        pending = [value]
        while pending:
            one = pending.pop()
            if one is None or one not in one.graph or one.is_read:
                continue
            producer = one.producer
            if producer is None:
                self.drop_unread(one)
            elif not any(made is not None and made.is_read for made in producer.outputs):
                pending += producer.inputs
                self.erase_op(producer)

    def _is_unread(self, value: Value) -> bool:
        graph = value.graph
        droppable = value in graph and (value.const is not None or value.captured is not None)
        return droppable and not value.is_read

    def _remove_value(self, value: Value) -> None:
        graph = value.graph
        self._remove_quantizers(value)
        self._transaction.change(_ASPECTS_OF_VALUE, (graph._remove_node, value), (graph._add_node, value))
        journal, transaction, rewrite = self.model.journal, self._transaction, self._transaction.rewrite
        if rewrite is not None:
            transaction.put((), journal.removed, value.name, rewrite.remark)
            transaction.drop((), journal.successors, value.name)
            if value in rewrite.replaced:
                transaction.put((), journal.successors, value.name, rewrite.replaced[value])

    def _remove_quantizers(self, node: Op | Value) -> None:
        for site in self.model.quant.sites_on(node):
            self.model.quant.remove(site, f"{'the op' if isinstance(node, Op) else 'the tensor'} was removed")

    # -- payloads -----------------------------------------------------------------------------------

    def set_type_of_op(self, op: Op, op_type: str, domain: str = "") -> None:
        """Makes an op one of another operator; results and attributes stay, and the inputs that are there."""
        ports = (port for port, value in enumerate(op.inputs, 1) if value is not None)
        for field, found in (("op_type", op_type), ("domain", domain), ("num_inputs", max(ports, default=0))):
            self._set(op, field, found)

    def set_attribute(self, op: Op, name: str, value: Any) -> None:
        """Sets an attribute of an op; None removes it."""
        attributes = {key: proto for key, proto in op.attributes.items() if key != name}
        if value is not None:
            attributes[name] = helper.make_attribute(name, value)
        self._set(op, "attributes", attributes)

    def set_type(self, value: Value, type: ValueType) -> None:
        """Sets the element type and shape of a value."""
        self._transaction.set((TYPES,), value, "type", type)

    def set_element_type(self, value: Value, elem_type: int) -> None:
        """Gives a value another element type; the data of an initializer is converted when it is read."""
        if value.const is not None:
            self._transaction.set((CONSTANTS,), value, "const", value.const.read_as(elem_type))
        self.set_type(value, value.type._replace(elem_type=elem_type))

    def set_constant(self, value: Value, data: np.ndarray, in_float: bool = True) -> None:
        """Gives an initializer other numbers, of the same shape and type; its grid stays, not its codes.

        Without ``in_float`` the float model keeps those that it has, see :meth:`restore_floats`.
        """
        assert value.const is not None
        kept = None if in_float else value.float_const or value.const
        if kept is not value.float_const:
            self._transaction.set((CONSTANTS,), value, "float_const", kept)
        const = TensorRef.from_array(data, value.const.data_type)
        self._transaction.set((CONSTANTS,), value, "const", const)
        self.model.quant.drop_codes(value, "other numbers")

    def restore_floats(self) -> None:
        """Gives all constants the numbers of the float model. To be used in a trial."""
        for value in (value for graph in self.model.graphs() for value in graph.values()):
            if value.float_const is not None:
                self._transaction.set((CONSTANTS,), value, "const", value.float_const)

    def set_opset(self, domain: str, version: int) -> None:
        """Imports a version of an operator domain."""
        self._set(self.model, "opset_imports", {**self.model.opset_imports, domain: version})

    def replace_graphs(self, other: Model) -> None:
        """Takes over all graphs of ``other``, which was lifted from another form of this model.

        Nothing may be matched or quantized yet. ``other`` must not be used afterwards.
        """
        aspects = (STRUCTURE, TYPES, CONSTANTS)
        for graph in other.graphs():
            self._transaction.set(aspects, graph, "model", self.model)
        for field in ("origin", "graph", "functions", "opset_imports", "names", "_last_id"):
            self._transaction.set(aspects, self.model, field, getattr(other, field))

    # -- primitives ---------------------------------------------------------------------------------

    def _set(self, owner: object, field: str, value: object) -> None:
        self._transaction.set(_STRUCTURE, owner, field, value)

    def _add(self, node: Op | Value) -> None:
        """Adds a node whose name is free."""
        aspects = _STRUCTURE if isinstance(node, Op) else _ASPECTS_OF_VALUE
        self._transaction.change(aspects, (self._insert, node), (self._withdraw, node))

    def _insert(self, node: Op | Value) -> None:
        node.graph._add_node(node)
        self.model.names.claim(node.name)

    def _withdraw(self, node: Op | Value) -> None:
        node.graph._remove_node(node)
        self.model.names.release(node.name)

    def _connect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph, edge = source.graph, (source, sink, port)
        self._transaction.change(_STRUCTURE, (graph._connect, *edge), (graph._disconnect, *edge))

    def _disconnect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph, edge = source.graph, (source, sink, port)
        self._transaction.change(_STRUCTURE, (graph._disconnect, *edge), (graph._connect, *edge))

    def _fresh_name(self, hint: str) -> str:
        names = self.model.names
        name = names.free(hint)
        self._transaction.change((), (names.claim, name), (names.release, name))
        return name

    def _replace(self, old: Value, new: Value) -> None:
        if self._transaction.rewrite is not None:
            self._transaction.rewrite.replaced[old] = new
