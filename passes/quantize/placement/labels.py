"""The cheapest way to give each of many nodes one of two labels: a minimum cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping

import networkx as nx

NEVER = 1 << 60  # a cost that no sum of others reaches


class Labels:
    """Nodes that are integer or float, and what that costs, in whole numbers that are not negative."""

    def __init__(self) -> None:
        self._own: dict[Hashable, tuple[int, int]] = {}
        self._between: dict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._back: dict[Hashable, dict[Hashable, None]] = defaultdict(dict)

    def add_node(self, node: Hashable, integer: int = 0, float: int = 0) -> None:
        """Adds a node, with the cost of each label."""
        before = self._own.get(node, (0, 0))
        self._own[node] = before[0] + integer, before[1] + float

    def own(self, node: Hashable) -> tuple[int, int]:
        """What a node costs as integer and as float."""
        return self._own[node]

    def add_cost(self, integer: Hashable, float: Hashable, cost: int) -> None:
        """Adds what is paid if the first node is integer and the second one float."""
        if integer != float:
            self.add_node(integer)
            self.add_node(float)
            self._between[integer][float] = self._between[integer].get(float, 0) + cost
            self._back[float][integer] = None

    def all_float(self) -> dict[Hashable, bool]:
        """Float for every node that may be."""
        return {node: float < NEVER for node, (_, float) in self._own.items()}

    def neighbours(self) -> nx.Graph:
        """The nodes, with an edge between those that share a cost."""
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from(self._own)
        graph.add_edges_from((one, other) for one, costs in self._between.items() for other in costs)
        return graph

    def cost(self, is_float: Mapping[Hashable, bool], touching: Iterable[Hashable] | None = None) -> int:
        """What labels cost, in all or as far as it is at some nodes or between them and others."""
        nodes = self._own.keys() if touching is None else set(touching)
        total = sum(self._own[node][is_float[node]] for node in nodes)
        for node in nodes:
            if is_float[node]:
                outside = (one for one in self._back.get(node, ()) if one not in nodes)
                total += sum(self._between[one][node] for one in outside if not is_float[one])
            else:
                costs = self._between.get(node, {})
                total += sum(cost for other, cost in costs.items() if is_float[other])
        return total

    def cheapest(
        self, integer: Iterable[Hashable] = (), float: Iterable[Hashable] = ()
    ) -> dict[Hashable, bool]:
        """Whether each node is float where the sum of all costs is least; integer where both are as good.

        Args:
            integer: nodes that are to be integer whatever it costs.
            float: nodes that are to be float whatever it costs.

        "What energy functions can be minimized via graph cuts?" (Kolmogorov and Zabih, 2004). Nodes whose
        label is certain from what they and their neighbours cost go first, so that the cuts are small.
        """
        own = self._own | dict.fromkeys(integer, (0, NEVER)) | dict.fromkeys(float, (NEVER, 0))
        rest = _Rest(own, self._between)
        rest.settle({node: costs[0] >= NEVER for node, costs in own.items() if max(costs) >= NEVER})
        return {node: rest.is_float[node] for node in self._own}


class _Rest:
    """The nodes that have no label yet."""

    def __init__(
        self,
        own: Mapping[Hashable, tuple[int, int]],
        between: Mapping[Hashable, Mapping[Hashable, int]],
    ) -> None:
        self.is_float: dict[Hashable, bool] = {}
        self._lean = {node: float - integer for node, (integer, float) in own.items()}
        self._to: dict[Hashable, dict[Hashable, int]] = {node: {} for node in own}
        self._from: dict[Hashable, dict[Hashable, int]] = {node: {} for node in own}
        for one, costs in between.items():
            for other, cost in costs.items():
                self._to[one][other] = self._from[other][one] = cost

    def settle(self, certain: Mapping[Hashable, bool]) -> None:
        """Gives every node its label: these whether they are float, and then all others."""
        for node, is_float in certain.items():
            self._decide(node, is_float)
        waiting = dict.fromkeys(self._lean)
        while waiting:
            node, _ = waiting.popitem()
            lean = self._lean.get(node)
            if lean is None:
                continue
            if lean >= sum(self._to[node].values()):
                waiting |= dict.fromkeys(self._decide(node, False))
            elif -lean > sum(self._from[node].values()):
                waiting |= dict.fromkeys(self._decide(node, True))
        links = ((one, other) for one, costs in self._to.items() if one in self._lean for other in costs)
        graph: nx.Graph = nx.Graph(links)
        for nodes in nx.connected_components(graph):
            self._cut(nodes)

    def _decide(self, node: Hashable, is_float: bool) -> list[Hashable]:
        """Labels a node: what it shares with others becomes part of what these cost themselves."""
        self.is_float[node] = is_float
        del self._lean[node]
        to, back = self._to.pop(node), self._from.pop(node)
        for other, cost in to.items():
            del self._from[other][node]
            self._lean[other] += 0 if is_float else cost
        for other, cost in back.items():
            del self._to[other][node]
            self._lean[other] -= cost if is_float else 0
        return [*to, *back]

    def _cut(self, nodes: set[Hashable]) -> None:
        """Labels nodes that are connected with each other alone."""
        leans = [self._lean[node] for node in nodes]
        if min(leans) >= 0 or max(leans) < 0:  # all at their least, and nothing is paid between them
            self.is_float |= dict.fromkeys(nodes, max(leans) < 0)
            return
        graph: nx.DiGraph = nx.DiGraph()
        source, sink = object(), object()
        graph.add_nodes_from((source, sink))
        for node in nodes:
            lean = self._lean[node]
            graph.add_edge(*((source, node) if lean > 0 else (node, sink)), capacity=abs(lean))
            graph.add_edges_from((node, other, {"capacity": cost}) for other, cost in self._to[node].items())
        _, (_, floats) = nx.minimum_cut(graph, source, sink)
        self.is_float |= {node: node in floats for node in nodes}
