"""Cuts models: down to what some tensors need, to the segment between some tensors, or to chosen nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.protos import nested_graphs, reads, walk_graphs, walk_nodes

from .names import tensor_names

T = TypeVar("T")

# What a part takes over from its model as it is.
_KEPT_FIELDS = ("ir_version", "producer_name", "producer_version", "domain", "model_version")


def expose_tensors(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A model whose outputs are the named tensors of the main graph, cut down to what they need.

    The outputs have no type; ONNX Runtime infers it.

    Raises:
        UsageError: the main graph has no such tensor.
    """
    known = set(tensor_names(model.graph))
    for name in names:
        if name not in known:
            raise UsageError(
                f"the main graph has no tensor '{name}'{nearest(name, sorted(known))}; "
                "tensors inside a branch or loop body cannot be outputs"
            )
    result = needed_part(model, names)
    for name in dict.fromkeys(names):
        result.graph.output.add(name=name)
    return result


def with_shape_ops(model: ModelProto, names: Sequence[str]) -> tuple[ModelProto, list[str]]:
    """A model whose outputs are the shapes of the named tensors of the main graph, and their names.

    Raises:
        UsageError: the main graph has no such tensor.
    """
    result = expose_tensors(model, names)
    prefix = "shape_"
    while any(name.startswith(prefix) for name in tensor_names(result.graph)):
        prefix = f"_{prefix}"
    outputs = [f"{prefix}{index}" for index in range(len(names))]
    for name, output in zip(names, outputs, strict=True):
        result.graph.node.add(op_type="Shape", input=[name], output=[output])
    del result.graph.output[:]
    result.graph.output.extend(helper.make_tensor_value_info(out, TensorProto.INT64, None) for out in outputs)
    return result, outputs


def needed_part(model: ModelProto, names: Iterable[str]) -> ModelProto:
    """A copy of ``model`` without outputs, and without what the named tensors do not need.

    Args:
        names: tensors of any graph. Of a tensor inside a body, the node that the body belongs to is needed.

    Raises:
        UsageError: no graph has such a tensor, or several graphs have one.
    """
    wanted, cutter = list(dict.fromkeys(names)), Cutter(model)
    inside = _owners(model, wanted)
    indices = cutter.upstream((name for name in wanted if name not in inside), through=inside.values())
    nodes = [model.graph.node[index] for index in indices]
    own = {name for name in wanted if name not in inside}
    read = own.union(*map(reads, nodes))
    # An input with a default stays or goes with its default: alone it would have to be fed.
    inputs = [info for info in model.graph.input if info.name in read or not cutter.is_stored(info.name)]
    return cutter.assemble(nodes, inputs, (), own)


def _owners(model: ModelProto, wanted: Sequence[str]) -> dict[str, int]:
    """By the name of a tensor inside a body, the index of the node that the body belongs to."""
    owner = {
        name: index
        for index, node in enumerate(model.graph.node)
        for body in nested_graphs(node)
        for nested in walk_graphs(body)
        for name in tensor_names(nested)
    }
    own = set(tensor_names(model.graph))
    names = set(wanted)
    count = Counter(
        name for nested in walk_graphs(model.graph) for name in names.intersection(tensor_names(nested))
    )
    for name in wanted:
        if not count[name]:
            raise UsageError(f"the model has no tensor '{name}'{nearest(name, sorted({*own, *owner}))}")
        if count[name] > 1:
            raise UsageError(f"several graphs have a tensor '{name}'; give them names of their own")
    return {name: owner[name] for name in wanted if name in owner}


class Cutter:
    """Makes models of some of the nodes of another one.

    Attributes:
        model: the model; not changed.
        types: the types of its tensors by name, as far as they are known.
    """

    def __init__(self, model: ModelProto, types: Mapping[str, TypeProto] = MappingProxyType({})) -> None:
        self.model = model
        self.types = types
        graph = model.graph
        self._inputs = {info.name: info for info in graph.input}
        self._outputs = {info.name: info for info in graph.output}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {sparse.values.name: sparse for sparse in graph.sparse_initializer}

    @cached_property
    def producers(self) -> dict[str, int]:
        """By the name of a tensor, the index of the node that computes it."""
        return {name: i for i, node in enumerate(self.model.graph.node) for name in node.output if name}

    @cached_property
    def readers(self) -> Mapping[str, list[int]]:
        """By the name of a tensor, the indices of the nodes that read it, in a body or not."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.model.graph.node):
            for name in reads(node):
                found[name].append(index)
        return found

    @cached_property
    def _known(self) -> dict[str, ValueInfoProto]:
        """The declarations of tensors that are no inputs."""
        return {info.name: info for info in (*self.model.graph.value_info, *self.model.graph.output)}

    @cached_property
    def _places(self) -> dict[str, int]:
        """Where what has a name is listed in the model."""
        return {name: place for place, name in enumerate((*self._initializers, *self._sparse, *self._known))}

    @cached_property
    def _constants(self) -> dict[str, NodeProto]:
        return {node.output[0]: node for node in self.model.graph.node if node.op_type == "Constant"}

    def ops(self) -> list[NodeProto]:
        """The nodes that are no constants, in order."""
        return [node for node in self.model.graph.node if node.op_type != "Constant"]

    def is_stored(self, name: str) -> bool:
        """Whether a tensor is an initializer."""
        return name in self._initializers or name in self._sparse

    def upstream(
        self, names: Iterable[str], given: Collection[str] = (), through: Iterable[int] = ()
    ) -> list[int]:
        """The indices of the nodes that tensors depend on, in the order of the graph.

        Args:
            names: tensors of the main graph.
            given: tensors that need no node.
            through: further nodes that are wanted, with what they depend on.
        """
        found: set[int] = set()
        pending = [*through, *(self.producers[n] for n in names if n in self.producers and n not in given)]
        while pending:
            index = pending.pop()
            if index not in found:
                found.add(index)
                read = (name for name in reads(self.model.graph.node[index]) if name not in given)
                pending.extend(self.producers[name] for name in read if name in self.producers)
        return sorted(found)

    def segment(self, names: Sequence[str], given: Mapping[str, TypeProto]) -> ModelProto:
        """The model that computes tensors from given ones, as far as it can, else from the inputs.

        Args:
            names: its outputs, none of them given.
            given: the types of the tensors that may become inputs.
        """
        nodes = [self.model.graph.node[index] for index in self.upstream(names, given)]
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        # A node that runs for another of its results makes what is given once more.
        made = {name for node in nodes for name in node.output}
        taken = (name for name in read if name in given and name not in made)
        inputs = [ValueInfoProto(name=name, type=given[name]) for name in taken]
        inputs += [
            info
            for name, info in self._inputs.items()
            if name in read and name not in given and not self.is_stored(name)
        ]
        declared = {info.name: info for info in self._declared(names, self._outputs)}
        outputs = [declared.get(name, ValueInfoProto(name=name)) for name in names]
        return self.assemble(nodes, inputs, outputs, overridden=given)

    def part(self, ops: Sequence[NodeProto], hidden: Collection[str] = ()) -> ModelProto | None:
        """A model of some ops, in the order in which they run; Constant nodes come along with their readers.

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
        constants = [self._constants[name] for name in read if name in self._constants and name not in made]
        outside = [name for name in read if name not in made and name not in self._constants]
        fed = [name for name in outside if not self.is_stored(name) or name in self._inputs]
        inputs = self._declared(self._in_order(fed), self._inputs)
        if not outputs or len(inputs) < len(fed):
            return None
        return self.assemble([*constants, *ops], inputs, outputs)

    def assemble(
        self,
        nodes: Sequence[NodeProto],
        inputs: Iterable[ValueInfoProto],
        outputs: Iterable[ValueInfoProto],
        kept: Collection[str] = (),
        overridden: Collection[str] = (),
    ) -> ModelProto:
        """A model of nodes, with the initializers that they read.

        Args:
            kept: initializers that stay, read or not.
            overridden: tensors that are inputs, although the model has initializers for them.
        """
        part = ModelProto()
        for field in _KEPT_FIELDS:
            if self.model.HasField(field):
                setattr(part, field, getattr(self.model, field))
        part.opset_import.extend(self.model.opset_import)
        called = {(node.domain, node.op_type) for node in walk_nodes(nodes)}
        if any((function.domain, function.name) in called for function in self.model.functions):
            part.functions.extend(self.model.functions)  # which may call each other
        graph = part.graph
        graph.name = self.model.graph.name
        graph.node.extend(nodes)
        graph.input.extend(inputs)
        graph.output.extend(outputs)
        made = {name for node in nodes for name in node.output}
        read = {name for node in nodes for name in reads(node)}
        stored = read.difference(made, overridden).union(kept)
        graph.initializer.extend(self._listed(self._initializers, stored))
        graph.sparse_initializer.extend(self._listed(self._sparse, stored))
        inner = made.difference(info.name for info in graph.output)
        graph.value_info.extend(self._listed(self._known, inner))
        return part

    def _listed(self, known: Mapping[str, T], names: Collection[str]) -> list[T]:
        """What has one of some names, in the order of the model; others cost nothing."""
        found = [name for name in names if name in known]
        return [known[name] for name in sorted(found, key=self._places.__getitem__)]

    def _results(self, made: Iterable[str], read: Collection[str], hidden: Collection[str]) -> list[str]:
        """The names that are to be outputs, those of the model first and in its order."""
        kept = [name for name in self._outputs if name in made]
        kept += [name for name in made if name not in read and name in self.readers and name not in kept]
        if not kept:  # nothing of the model needs these ops, as it stands
            kept = [name for name in made if name not in read]
        return [name for name in kept if name not in hidden]

    def _in_order(self, names: Collection[str]) -> list[str]:
        """The inputs of the model first and in its order."""
        return [name for name in self._inputs if name in names] + [n for n in names if n not in self._inputs]

    def _declared(self, names: Iterable[str], known: Mapping[str, ValueInfoProto]) -> list[ValueInfoProto]:
        """The declarations of names; what has no known type is left out."""
        found = ((name, known.get(name), self.types.get(name)) for name in names)
        return [info or ValueInfoProto(name=name, type=type) for name, info, type in found if info or type]
