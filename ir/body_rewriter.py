"""Changes of ops together with their bodies: what a loop carries, branches without a choice, iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .analysis import CONSTANTS, STRUCTURE, TYPES
from .graph import Graph, Op, Value
from .rewriter import Rewriter


class BodyRewriter(Rewriter):
    """A rewriter that also changes the interface of a body, or puts a body in the place of its op."""

    def remove_state(self, op: Op, port: int, output: int) -> None:
        """Takes what a Loop or Scan carries, and nothing reads, out of its interface and that of its body.

        Nothing may be quantized yet, since the ports behind it move down.

        Args:
            port: where it comes in; the input of the body has the same index.
            output: where it goes out. The body of a Loop gives back a condition before all that it carries.

        Raises:
            ValueError: an op of the body still reads it, or somebody reads the last of it.
        """
        (body,) = op.subgraphs.values()
        results = op.outputs
        given, last = body.inputs[port], results[output] if output < len(results) else None
        back = output + op.is_type("Loop")
        if body.nx.sinks(given.id) or (last is not None and last.is_read):
            raise ValueError(f"{op.label} cannot stop carrying '{given.name}', which is still read")
        for index, value in enumerate((*op.inputs[port + 1 :], None), port):
            self.set_input(op, index, value)
        self._set(op, "num_inputs", op.num_inputs - 1)
        for index, value in enumerate(results[output:], output):
            if value is not None:
                self._disconnect(op, value, index)
        for index, value in enumerate(results[output + 1 :], output):
            if value is not None:
                self._connect(op, value, index)
        self._set(op, "num_outputs", len(results) - (output < len(results)))
        self._set(body, "inputs", [*body.inputs[:port], *body.inputs[port + 1 :]])
        self._set(body, "outputs", [*body.outputs[:back], *body.outputs[back + 1 :]])
        for value in (last, given):
            if value is not None and not value.is_read:
                self._remove_value(value)

    def inline_branch(self, op: Op, branch: Graph) -> None:
        """Puts the ops of a branch of an If in its place, and removes the If with its other branch.

        The ops and tensors are the same as before, with their names unless others have these as well.
        Nothing may be quantized yet.
        """
        sources = {value: value.captured or value for value in branch.values()}
        moved: list[Op | Value] = [value for value, source in sources.items() if value is source]
        moved += branch.ops()
        between = list(branch.nx.edges(keys=True))
        edges = [(branch.payload(source), branch.payload(sink), port) for source, sink, port in between]
        for edge in edges:
            self._disconnect(*edge)
        for node in moved:
            self._move(node, op, sources)
        for source, sink, port in edges:
            self._connect(sources[source] if isinstance(source, Value) else source, sink, port)
        for result, given in zip(op.outputs, branch.outputs, strict=True):
            if result is not None and given is not None:
                self.give_result(result, sources[given])
        self.erase_op(op)
        self._name_apart(moved)

    def give_result(self, result: Value, given: Value) -> None:
        """Lets all that reads a result of an op with bodies read another tensor of its graph."""
        graph = result.graph
        if result.is_output:
            if given.producer is None or given.is_output:
                identity = self.add_value(graph, result.name)
                self.add_op(graph, "Identity", [given], [identity])
                given = identity
            self.set_type(given, result.type)
        self.replace_uses(result, given)

    def copy_body(self, body: Graph, known: Mapping[Value, Value]) -> list[Value]:
        """Adds the ops of a body beside the op that has it, on tensors of the graph around them.

        Nothing may be quantized yet.

        Args:
            body: a graph with a parent, which stays as it is.
            known: what the inputs and constants of the body are there.

        Returns:
            What the outputs of the body are there.
        """
        assert body.parent is not None
        captured = {value: value.captured for value in body.values() if value.captured is not None}
        twins = self._copy_ops(body, body.parent.graph, {**captured, **known})
        return [twins[value] for value in body.outputs if value is not None]

    def _copy_ops(self, source: Graph, target: Graph, known: Mapping[Value, Value]) -> dict[Value, Value]:
        """Adds the ops of one graph to another; what all tensors are there."""
        twins = dict(known)
        for value in source.values():
            if value not in twins:
                twins[value] = self.add_value(target, value.name, value.type)
                self._transaction.set((CONSTANTS,), twins[value], "const", value.const)
        for op in source.ops():
            self._copy_op(op, target, twins)
        return twins

    def _copy_op(self, op: Op, target: Graph, twins: Mapping[Value, Value]) -> None:
        inputs, outputs = (
            [twins[value] if value is not None else None for value in values]
            for values in (op.inputs, op.outputs)
        )
        twin = self.add_op(target, op.op_type, inputs, outputs, domain=op.domain, name=op.name or None)
        twin.attributes, twin.overload = op.attributes, op.overload
        for key, body in op.subgraphs.items():
            inner = Graph(self.model, body.name, parent=twin)
            self.add_body(twin, key, inner)
            captured = {
                value: self.capture(inner, twins[value.captured])
                for value in body.values()
                if value.captured is not None
            }
            known = self._copy_ops(body, inner, captured)
            inner.inputs = [known[value] for value in body.inputs]
            inner.outputs = [known[value] if value is not None else None for value in body.outputs]

    def _move(self, node: Op | Value, op: Op, sources: Mapping[Value, Value]) -> None:
        """Moves a node without edges out of a branch of ``op`` into the graph around it.

        ``sources`` tells what the tensors of the branch are there.
        """
        aspects, inside, outside = (STRUCTURE, TYPES, CONSTANTS), node.graph, op.graph
        self._transaction.change(aspects, (inside._remove_node, node), (inside._add_node, node))
        self._set(node, "graph", outside)
        self._transaction.change(aspects, (outside._add_node, node), (outside._remove_node, node))
        if isinstance(node, Op):
            self._set(node, "position", (*op.position, *node.position))
            for value in (value for body in node.subgraphs.values() for value in body.values()):
                if value.captured is not None:
                    self._set(value, "captured", sources[value.captured])

    def _name_apart(self, moved: Sequence[Op | Value]) -> None:
        """Gives nodes whose names others have as well names of their own."""
        graphs = list(self.model.graphs())
        values = Counter(value.name for graph in graphs for value in graph.values() if value.captured is None)
        ops = Counter(op.name for graph in graphs for op in graph.ops())
        for node in moved:
            if node.name and (ops if isinstance(node, Op) else values)[node.name] > 1:
                self._set(node, "name", self._fresh_name(node.name))
