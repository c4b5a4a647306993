"""Models made of some of the ops of another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

# What a part takes over from its model as it is.
_KEPT_FIELDS = ("ir_version", "producer_name", "producer_version", "domain", "model_version")


def nested_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and all nodes in their bodies."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending.extend(inner for graph in nested_graphs(node) for inner in graph.node)


def count_ops(model: ModelProto) -> int:
    """The number of nodes, bodies included, that are no constants."""
    return sum(node.op_type != "Constant" for node in walk_nodes(model.graph.node))


def reads(node: NodeProto) -> list[str]:
    """The names that a node reads, those that its bodies read from around it included, each once."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in nested_graphs(node):
        names.update(dict.fromkeys(_captures(graph)))
    return list(names)


def _captures(graph: GraphProto) -> Iterator[str]:
    """The names that a body reads and does not define."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (info.name for info in graph.output if info.name not in own)


def with_reads_renamed(node: NodeProto, old: str, new: str) -> NodeProto:
    """The node with another name wherever it reads ``old``, its bodies included."""
    if old not in reads(node):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    _rename(copy, old, new)
    return copy


def _rename(node: NodeProto, old: str, new: str) -> None:
    node.input[:] = [new if name == old else name for name in node.input]
    for graph in nested_graphs(node):
        if old in _captures(graph):
            for inner in graph.node:
                _rename(inner, old, new)
            for info in graph.output:
                info.name = new if info.name == old else info.name


class Parts:
    """Makes smaller models from the nodes of one.

    Constants (initializers and Constant nodes) come along wherever they are read; they do not count as ops.

    Attributes:
        model: the model; not changed.
        types: the types of its tensors by name, as far as they are known.
    """

    def __init__(self, model: ModelProto, types: Mapping[str, TypeProto]) -> None:
        self.model = model
        self.types = types
        graph = model.graph
        self._constants = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {sparse.values.name: sparse for sparse in graph.sparse_initializer}
        self._inputs = {info.name: info for info in graph.input}
        self._outputs = {info.name: info for info in graph.output}
        self._read = {name for node in graph.node for name in reads(node)}

    def ops(self) -> list[NodeProto]:
        """The nodes that are no constants, in order."""
        return [node for node in self.model.graph.node if node.op_type != "Constant"]

    def assemble(self, ops: Sequence[NodeProto], hidden: Collection[str] = ()) -> ModelProto | None:
        """A model of some ops, in the order in which they run.

        Its inputs are what they read and none of them makes; its outputs are the outputs of the model among
        what they make, and what others read of it.

        Args:
            hidden: names that are to be no outputs.

        Returns:
            None if nothing is made, or if an input has no known type.
        """
        made = dict.fromkeys(name for op in ops for name in op.output if name)
        read = dict.fromkeys(name for op in ops for name in reads(op))
        outputs = self._declared(self._results(made, read, hidden), self._outputs)
        if not outputs:
            return None
        constants = [name for name in read if name in self._constants and name not in made]
        outside = [name for name in read if name not in made and name not in self._constants]
        stored = {name for name in outside if name in self._initializers or name in self._sparse}
        fed = [name for name in outside if name not in stored or name in self._inputs]
        inputs = self._declared(self._in_order(fed), self._inputs)
        if len(inputs) < len(fed):
            return None
        model = self._shell(ops)
        model.graph.input.extend(inputs)
        model.graph.output.extend(outputs)
        model.graph.node.extend(self._constants[name] for name in constants)
        model.graph.node.extend(ops)
        model.graph.initializer.extend(t for name, t in self._initializers.items() if name in stored)
        model.graph.sparse_initializer.extend(s for name, s in self._sparse.items() if name in stored)
        declared = {name for name in made if name not in {info.name for info in outputs}}
        model.graph.value_info.extend(i for i in self.model.graph.value_info if i.name in declared)
        return model

    def _results(self, made: Iterable[str], read: Collection[str], hidden: Collection[str]) -> list[str]:
        """The names that are to be outputs, those of the model first and in its order."""
        kept = [name for name in self._outputs if name in made]
        kept += [name for name in made if name not in read and name in self._read and name not in kept]
        if not kept:  # nothing of the model needs these ops, as it stands
            kept = [name for name in made if name not in read]
        return [name for name in kept if name not in hidden]

    def _in_order(self, names: Iterable[str]) -> list[str]:
        """The inputs of the model first and in its order."""
        given = list(names)
        return [name for name in self._inputs if name in given] + [n for n in given if n not in self._inputs]

    def _declared(self, names: Iterable[str], known: Mapping[str, ValueInfoProto]) -> list[ValueInfoProto]:
        """The declarations of names; what has no known type is left out."""
        found = []
        for name in names:
            if name in known:
                found.append(known[name])
            elif name in self.types:
                found.append(ValueInfoProto(name=name, type=self.types[name]))
        return found

    def _shell(self, ops: Sequence[NodeProto]) -> ModelProto:
        """The model without its graph; local functions stay if an op may call one."""
        shell = ModelProto()
        for field in _KEPT_FIELDS:
            if self.model.HasField(field):
                setattr(shell, field, getattr(self.model, field))
        shell.opset_import.extend(self.model.opset_import)
        called = {(node.domain, node.op_type) for node in walk_nodes(ops)}
        if any((function.domain, function.name) in called for function in self.model.functions):
            shell.functions.extend(self.model.functions)
        shell.graph.name = self.model.graph.name
        return shell
