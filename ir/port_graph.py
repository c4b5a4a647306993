"""The networkx graph under the IR, made for hundreds of thousands of small edges."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import networkx as nx

Port = int | tuple[str, int]
Ports = Mapping[Port, Mapping[str, object]]


def in_order(ports: Ports) -> Iterable[Port]:
    """The ports of one edge: inputs by number, then captures."""
    return sorted(ports, key=lambda port: (not isinstance(port, int), port)) if len(ports) > 1 else ports


class CycleError(Exception):
    """The ops of a graph have no topological order."""


class _NoAttributes(dict[str, object]):
    """An attribute dictionary that stays empty, so that all nodes and edges can share it."""

    def __setitem__(self, key: str, value: object) -> None:
        raise TypeError("the nodes and edges of this graph have no attributes")

    def update(self, *others: Any, **attributes: Any) -> None:
        """Takes nothing in; networkx calls this with nothing when it copies a graph."""
        for key, value in dict(*others, **attributes).items():
            self[key] = value


_NO_ATTRIBUTES = _NoAttributes()


class PortGraph(nx.MultiDiGraph):  # type: ignore[misc]
    """A MultiDiGraph with integers as nodes and ports as edge keys, both without attributes.

    The dictionaries from port to attributes are shared: all pairs of nodes that are joined by the same ports
    have the same one, which never changes. Nearly all pairs are joined by one port, so an edge costs no more
    than its two entries in the adjacency of its ends.
    """

    node_attr_dict_factory = staticmethod(lambda: _NO_ATTRIBUTES)

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        self._shared: dict[tuple[Port, ...], Ports] = {}
        super().__init__(*arguments, **attributes)

    def add_node(self, node: int) -> None:
        """Adds a node, unless it is there already."""
        if node not in self._succ:
            self._succ[node], self._pred[node], self._node[node] = {}, {}, _NO_ATTRIBUTES

    def add_edge(self, source: int, sink: int, key: Port) -> Port:
        """Joins two nodes of the graph at a port.

        Raises:
            KeyError: one of the nodes is not in the graph.
        """
        sinks, sources = self._succ[source], self._pred[sink]
        ports = self._ports((*sinks.get(sink, ()), key))
        sinks[sink] = sources[source] = ports
        return key

    def remove_edge(self, source: int, sink: int, key: Port) -> None:
        """Takes one edge away.

        Raises:
            KeyError: there is no such edge.
        """
        sinks, sources = self._succ[source], self._pred[sink]
        sinks[sink][key]
        left = tuple(port for port in sinks[sink] if port != key)
        if left:
            sinks[sink] = sources[source] = self._ports(left)
        else:
            del sinks[sink], sources[source]

    def sources(self, node: int) -> Mapping[int, Ports]:
        """The nodes with an edge to ``node``, and the ports of these edges."""
        found: Mapping[int, Ports] = self._pred[node]
        return found

    def sinks(self, node: int) -> Mapping[int, Ports]:
        """The nodes with an edge from ``node``, and the ports of these edges."""
        found: Mapping[int, Ports] = self._succ[node]
        return found

    def ordered(self, ranks: Mapping[int, Any]) -> list[int]:
        """The nodes that have a rank in topological order; of all such orders the first by rank.

        Between two of them is always one node without. Nodes on a cycle, and behind one, are left out.
        """
        waiting = {node: sum(1 for source in self._pred[node] if self._pred[source]) for node in ranks}
        ready = [(ranks[node], node) for node, count in waiting.items() if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, node = heapq.heappop(ready)
            order.append(node)
            for result in self._succ[node]:
                for user in self._succ[result]:
                    waiting[user] -= 1
                    if not waiting[user]:
                        heapq.heappush(ready, (ranks[user], user))
        return order

    def _ports(self, ports: tuple[Port, ...]) -> Ports:
        found = self._shared.get(ports)
        if found is None:
            found = self._shared[ports] = MappingProxyType(dict.fromkeys(ports, _NO_ATTRIBUTES))
        return found
