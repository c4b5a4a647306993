"""Ops that came and went, as edits: connected ones together, with what took their place."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import networkx as nx

from qc.ir.graph import Op, Value

from .alignment import Alignment, corresponding
from .folding import Fold
from .wiring import GraphWiring


@dataclass
class Edit:
    """Connected ops of the first graph that are gone, and those of the second in their place.

    Attributes:
        fold: how the removed ops became part of the weights before them, if they did.
    """

    removed: list[Op] = field(default_factory=list)
    added: list[Op] = field(default_factory=list)
    fold: Fold | None = None


def find_edits(a: GraphWiring, b: GraphWiring, by_position: bool, alignment: Alignment) -> list[Edit]:
    """The edits in the order of the first graph, then of the second.

    Ops are connected if one reads what the other makes, and, across the graphs, if what they make is read
    at the same place.
    """
    gone = [op for op in a.ops if op not in alignment.ops]
    new = [op for op in b.ops if op not in alignment.ops_back]
    connected = nx.Graph()
    connected.add_nodes_from((*gone, *new))
    for graph, free in ((a, gone), (b, new)):
        connected.add_edges_from(
            (op, producer) for op in free for producer in _producers(graph, op) if producer in connected
        )
    partners: dict[Op | Value | None, Op | Value | None] = {op: alignment.ops.get(op) for op in a.ops}
    partners.update(corresponding(a.graph.outputs, b.graph.outputs, by_position))
    exits = {(partners.get(user), port): op for op, user, port in _exits(a, connected)}
    for op, user, port in _exits(b, connected):
        if (user, port) in exits:
            connected.add_edge(exits[user, port], op)
    edits: list[Edit] = []
    edit_of: dict[Op, Edit] = {}
    for ops in nx.connected_components(connected):
        edits.append(Edit())
        edit_of.update(dict.fromkeys(ops, edits[-1]))
    for op in gone:
        edit_of[op].removed.append(op)
    for op in new:
        edit_of[op].added.append(op)
    return edits


def _producers(graph: GraphWiring, op: Op) -> Iterator[Op]:
    values = [read.value for read in graph.reads[op] if read is not None]
    for value in (*values, *graph.captured.get(op, ())):
        if value in graph.producer:
            yield graph.producer[value]


def _exits(graph: GraphWiring, free: Container[Op]) -> Iterator[tuple[Op, Op | Value, int]]:
    """The free ops whose results are read elsewhere: by which other op at which port, or as which output."""
    for op in graph.ops:
        for port, read in enumerate(graph.reads[op]):
            producer = graph.producer.get(read.value) if read is not None and op not in free else None
            if producer is not None and producer in free:
                yield producer, op, port
    for output, read in graph.outputs.items():
        producer = graph.producer.get(read.value)
        if producer is not None and producer in free:
            yield producer, output, 0
