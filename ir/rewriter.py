"""The only way to change a graph: numbered actions made of primitive edits, each of which can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import helper

from .graph import UNKNOWN, Graph, Op, Port, Use, Value, ValueType
from .journal import REWRITE, Remark
from .model import Model
from .quant_table import QuantTable
from .tensor_ref import TensorRef


class Rewriter:
    """Edits the graphs of one model.

    Edits belong to an action: ``with rewriter.action("rule", op): ...`` numbers it, gives new ops their
    provenance and position, and takes all its edits back when an exception leaves the block.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._undo: list[Callable[[], object]] = []
        self._open = False
        self._action: Remark | None = None
        self._anchor: Op | None = None
        self._kept_table: QuantTable | None = None
        self._removed: list[str] = []

    @contextmanager
    def action(self, rule: str, subject: Op | Value) -> Iterator[Remark]:
        """Opens an action named after a rewriting rule, on the op or value that it is about."""
        if self._open:
            raise RuntimeError("actions do not nest")
        journal = self.model.journal
        before = len(journal.remarks), journal.action_count
        label = subject.label if isinstance(subject, Op) else f"'{subject.name}'"
        self._action = journal.act(REWRITE, subject, label, rule)
        self._open, self._undo, self._removed = True, [], []
        self._anchor = subject if isinstance(subject, Op) else subject.graph.producer(subject)
        try:
            yield self._action
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            journal.take_back(*before)
            raise
        else:
            journal.removed.update(dict.fromkeys(self._removed, self._action))
        finally:
            self._open, self._action, self._anchor, self._undo = False, None, None, []
            self._kept_table = None

    # -- new nodes ----------------------------------------------------------------------------------

    def add_value(self, graph: Graph, name: str, type: ValueType = UNKNOWN) -> Value:
        """A new value; its name is made unique from ``name``."""
        value = Value(graph, self.model.new_id(), self._fresh_name(name))
        value.type = type
        self._edit(lambda: graph._add_node(value), lambda: graph._remove_node(value))
        return value

    def add_constant(self, graph: Graph, data: np.ndarray | TensorRef, name: str) -> Value:
        """A new initializer."""
        const = data if isinstance(data, TensorRef) else TensorRef.from_array(np.asarray(data))
        value = self.add_value(graph, name, ValueType(const.data_type, const.shape))
        value.const = const
        return value

    def add_default_input(self, graph: Graph, data: np.ndarray, name: str) -> Value:
        """A new graph input with a default: an initializer that a caller may override by feeding it."""
        value = self.add_constant(graph, data, name)
        self._set(graph, "inputs", [*graph.inputs, value])
        return value

    def fix_default(self, value: Value) -> None:
        """Makes an input with a default a plain constant, which nobody can override any more."""
        graph = value.graph
        self._set(graph, "inputs", [given for given in graph.inputs if given is not value])

    def add_op(
        self,
        graph: Graph,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | str],
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
        name: str | None = None,
    ) -> Op:
        """A new op. Outputs are values without a producer, or name hints for new values.

        Attribute values are what ``onnx.helper.make_attribute`` takes; None leaves an attribute out.
        """
        hint = name or (outputs[0] if isinstance(outputs[0], str) else outputs[0].name)
        op = Op(graph, self.model.new_id(), op_type, domain, self._fresh_name(f"{hint}/{op_type}"))
        op.attributes = {
            key: helper.make_attribute(key, value)
            for key, value in (attributes or {}).items()
            if value is not None
        }
        op.num_inputs, op.num_outputs = len(inputs), len(outputs)
        anchor = self._anchor or _first_producer(graph, inputs)
        op.position = (*(anchor.position if anchor else (-1,)), op.id)
        if self._action is not None:
            op.provenance = (self._action.reason, self._action.subject)
        self._edit(lambda: graph._add_node(op), lambda: graph._remove_node(op))
        for port, value in enumerate(inputs):
            if value is not None:
                self._connect(value, op, port)
        for port, output in enumerate(outputs):
            made = self.add_value(graph, output) if isinstance(output, str) else output
            self._connect(op, made, port)
        return op

    # -- edges --------------------------------------------------------------------------------------

    def set_input(self, op: Op, port: int, value: Value | None) -> None:
        """Makes ``value`` the input ``port`` of ``op``; None leaves the input out."""
        graph = op.graph
        if port >= op.num_inputs:
            self._set(op, "num_inputs", port + 1)
        old = graph.op_inputs(op)[port]
        if old is not None:
            self._disconnect(old, op, port)
        if value is not None:
            self._connect(value, op, port)

    def replace_uses(
        self,
        old: Value,
        new: Value,
        where: Callable[[Use], bool] = lambda use: True,
        outputs: bool = True,
    ) -> None:
        """Lets every reader of ``old`` that ``where`` accepts read ``new`` instead.

        With ``outputs``, a graph output moves too and keeps its name (the two values swap names), and the
        quantizer of ``old`` moves along. An output that is a graph input stays: it cannot give its name away.
        """
        graph = old.graph
        for use in graph.uses(old):
            if where(use):
                self._move_use(old, new, use)
        if outputs and graph.is_output(old) and not graph.is_input(old):
            self._set(graph, "outputs", [new if output is old else output for output in graph.outputs])
            self.swap_names(old, new)
        self._unhide(new)
        if outputs:
            self._keep_quantizers(old)
            self.model.quant.move(old, new)

    def _move_use(self, old: Value, new: Value, use: Use) -> None:
        self._disconnect(old, use.op, use.port)
        self._connect(new, use.op, use.port)
        if isinstance(use.port, int):
            return
        for nested in use.op.subgraphs.values():
            for inner in nested.values():
                if inner.captured is old:
                    self._set(inner, "captured", new)

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

    def _unhide(self, value: Value) -> None:
        """Renames the values of subgraphs that have the name of ``value`` where it is captured."""
        capturing = [use.op for use in value.graph.uses(value) if not isinstance(use.port, int)]
        for op in dict.fromkeys(capturing):
            for graph in (inner for nested in op.subgraphs.values() for inner in nested.walk()):
                values = graph.values()
                if any(other.original is value.original for other in values):
                    for other in values:
                        if other.captured is None and other.name == value.name:
                            self._set(other, "name", self._fresh_name(other.name))

    # -- removal ------------------------------------------------------------------------------------

    def erase_op(self, op: Op) -> None:
        """Removes an op, its outputs, and the initializers that nothing else reads.

        Raises:
            ValueError: an output is still read or is a graph output.
        """
        graph = op.graph
        inputs = [*graph.op_inputs(op), *graph.captures(op)]
        for value in graph.op_outputs(op):
            if value is not None and (graph.uses(value) or graph.is_output(value)):
                raise ValueError(f"{op.label} cannot be erased: '{value.name}' is still read")
        for port, value in enumerate(graph.op_outputs(op)):
            if value is not None:
                self._disconnect(op, value, port)
                self._remove_value(value)
        for source, _, edge_port in list(graph.nx.in_edges(op.id, keys=True)):
            self._disconnect(graph.nx.nodes[source]["payload"], op, edge_port)
        self._edit(lambda: graph._remove_node(op), lambda: graph._add_node(op))
        self._forget_quantizers(op)
        for value in inputs:
            if value is not None:
                self.drop_unread_constant(value)

    def drop_unread_constant(self, value: Value) -> None:
        """Removes an initializer that nothing reads; anything else is left alone."""
        graph = value.graph
        present = value.id in graph.nx and value.const is not None
        if present and not graph.nx.succ[value.id] and not graph.is_output(value):
            if graph.is_input(value):
                self.fix_default(value)
            self._remove_value(value)

    def _remove_value(self, value: Value) -> None:
        graph = value.graph
        self._edit(lambda: graph._remove_node(value), lambda: graph._add_node(value))
        self._removed.append(value.name)
        self._forget_quantizers(value)

    # -- payloads -----------------------------------------------------------------------------------

    def set_attribute(self, op: Op, name: str, value: Any) -> None:
        """Sets an attribute of an op; None removes it."""
        attributes = {key: proto for key, proto in op.attributes.items() if key != name}
        if value is not None:
            attributes[name] = helper.make_attribute(name, value)
        self._set(op, "attributes", attributes)

    def set_type(self, value: Value, type: ValueType) -> None:
        """Sets the element type and shape of a value."""
        self._set(value, "type", type)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A block whose edits are all taken back at its end: lowering edits, emits, and leaves no trace."""
        model = self.model
        before = (model.quant, set(model._names))
        model.quant = model.quant.copy()
        self._open, self._undo = True, []
        try:
            with model.journal.aside():
                yield
        finally:
            for undo in reversed(self._undo):
                undo()
            self._open, self._undo = False, []
            model.quant, model._names = before

    def set_opset(self, domain: str, version: int) -> None:
        """Imports a version of an operator domain."""
        self._set(self.model, "opset_imports", {**self.model.opset_imports, domain: version})

    # -- primitives ---------------------------------------------------------------------------------

    def _edit(self, do: Callable[[], object], undo: Callable[[], object]) -> None:
        if not self._open:
            raise RuntimeError("edits belong into 'with rewriter.action(...)' or 'with rewriter.trial()'")
        do()
        self._undo.append(undo)

    def _set(self, owner: object, field: str, new: object) -> None:
        old = getattr(owner, field)
        self._edit(lambda: setattr(owner, field, new), lambda: setattr(owner, field, old))

    def _fresh_name(self, hint: str) -> str:
        made: list[str] = []
        self._edit(
            lambda: made.append(self.model.fresh_name(hint)),
            lambda: self.model._names.discard(made[0]),
        )
        return made[0]

    def _connect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph = source.graph
        self._edit(lambda: graph._connect(source, sink, port), lambda: graph._disconnect(source, sink, port))

    def _disconnect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph = source.graph
        self._edit(lambda: graph._disconnect(source, sink, port), lambda: graph._connect(source, sink, port))

    def _forget_quantizers(self, payload: Op | Value) -> None:
        self._keep_quantizers(payload)
        self.model.quant.forget(payload)

    def _keep_quantizers(self, payload: Op | Value) -> None:
        """Keeps the table as it was, once for an action and only if the quantizers of ``payload`` matter."""
        table = self.model.quant
        if self._kept_table is None and self._action is not None and table.touches(payload):
            self._kept_table = before = table.copy()
            self._undo.append(lambda: table.restore(before))


def _first_producer(graph: Graph, inputs: Sequence[Value | None]) -> Op | None:
    return next((op for value in inputs if value is not None and (op := graph.producer(value))), None)
