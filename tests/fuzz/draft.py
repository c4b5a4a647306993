"""A model under mutation, the folder around it, and the register of mutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

T = TypeVar("T")

# Numbers at which sizes, counts, axes and offsets go wrong.
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    255,
    65536,
    -(2**31),
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
# Names at which scopes, paths, terminals and text formats go wrong.
NAMES = (
    "",
    " ",
    "x",
    "y",
    "a",
    "w",
    "/",
    "..",
    "../../x",
    "%x",
    "a\nb",
    "\0",
    "\x1b[31m",
    "[red]",
    "'\"\\",
    "é\u202e",
    "n" * 5000,
)


@dataclass
class Draft:
    """What a mutation changes.

    Attributes:
        rng: the source of every choice.
        model: the model.
        outside: the folder that nothing may be read from.
        files: contents of the files beside the model.
        links: symbolic links beside the model, by name, and what they point to.
        pipes: names of named pipes beside the model, which block whoever opens them.
    """

    rng: Random
    model: ModelProto
    outside: Path
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    pipes: list[str] = field(default_factory=list)

    def one(self, items: Sequence[T]) -> T:
        """One of the items.

        Raises:
            NothingToDo: there is none.
        """
        if not len(items):
            raise NothingToDo
        return self.rng.choice(items)

    def number(self) -> int:
        """A number that is likely to be wrong."""
        return self.rng.choice(NUMBERS)

    def name(self) -> str:
        """A name of the model, or one that is likely to be wrong."""
        known = names(self.model)
        return self.rng.choice(known if known and self.rng.random() < 0.5 else NAMES)

    def graph(self) -> GraphProto:
        """The main graph or a nested one."""
        return self.one(list(graphs(self.model)))

    def node(self) -> NodeProto:
        """A node of any graph or function."""
        return self.one(list(nodes(self.model)))

    def attribute(self) -> AttributeProto:
        """An attribute of any node."""
        return self.one([attribute for node in nodes(self.model) for attribute in node.attribute])

    def tensor(self) -> TensorProto:
        """An initializer, a tensor attribute, or a part of a sparse tensor."""
        return self.one(list(tensors(self.model)))

    def info(self) -> ValueInfoProto:
        """A declared input, output or intermediate value."""
        infos = [i for g in graphs(self.model) for kind in (g.input, g.output, g.value_info) for i in kind]
        return self.one(infos)


class NothingToDo(Exception):
    """A mutation finds nothing in the model that it could change."""


Mutation = Callable[[Draft], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    """Registers a mutation under its name."""
    MUTATIONS[function.__name__] = function
    return function


def graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and all nested ones."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending += nested(node)


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes of all graphs and functions."""
    for graph in graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def nested(node: NodeProto) -> list[GraphProto]:
    """The graphs that a node holds."""
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors, those of sparse ones included."""
    for graph in graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)


def names(model: ModelProto) -> list[str]:
    """Names of values, in order, some more than once."""
    return [name for node in nodes(model) for name in (*node.input, *node.output)]
