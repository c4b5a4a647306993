"""Looking ahead: which parts of a pattern can match a value, judged by the types of two levels of ops.

A graph has few signatures (an op type with the types that compute its inputs) however large it is, so
every question is answered once per signature, and nearly all attempts that must fail never start.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from qc.ir.graph import Graph, Op, Value

from .attributes import PARAMETER_PORTS
from .conditions import COMMUTATIVE
from .pattern import Alternatives, OpPattern
from .program import NO_OP, Kind, Node

Operands = tuple[Value | None, ...]
Order = tuple[int, ...]


class Signature(NamedTuple):
    """What computes a value, and what computes the inputs of that op."""

    kind: Kind
    inputs: tuple[Kind, ...]


_LEFT_OUT = Signature(None, ())


class Lookahead:
    """Answers, per signature, what is worth trying on one graph.

    Args:
        graph: the graph, which must not change.
        explain: whether to rule nothing out by the types of inputs, so that the matcher finds the reasons.
    """

    def __init__(self, graph: Graph, explain: bool) -> None:
        self._graph = graph
        self._explain = explain
        self._inputs: dict[Op, Operands] = {}
        self._producers: dict[Value, Op | None] = {}
        self._signatures: dict[Value, Signature] = {}
        self._interned: dict[Signature, Signature] = {}
        self._plausible: dict[tuple[Node, int], bool] = {}
        self._options: dict[tuple[Node, int], tuple[tuple[int, Node], ...]] = {}
        self._orders: dict[tuple[Node, int], tuple[Order, ...]] = {}

    def producer(self, value: Value) -> Op | None:
        """The op that computes ``value``."""
        if value not in self._producers:
            self._producers[value] = self._graph.producer(value)
        return self._producers[value]

    def inputs(self, op: Op) -> Operands:
        """The inputs of ``op`` by port, without the omitted ones at the end."""
        found = self._inputs.get(op)
        if found is None:
            found = self._graph.op_inputs(op)
            while found and found[-1] is None:
                found = found[:-1]
            self._inputs[op] = found
        return found

    def signature(self, value: Value | None) -> Signature:
        """The signature of a value (None: an input that is left out); equal ones are one object."""
        if value is None:
            return _LEFT_OUT
        found = self._signatures.get(value)
        if found is None:
            op = self.producer(value)
            inputs = tuple(self._kind(each) for each in self.inputs(op)) if op is not None else ()
            found = Signature(self._kind(value), inputs)
            found = self._signatures[value] = self._interned.setdefault(found, found)
        return found

    def _kind(self, value: Value | None) -> Kind:
        if value is None:
            return None
        op = self.producer(value)
        return NO_OP if op is None else (op.domain, op.op_type)

    def plausible(self, node: Node, signature: Signature) -> bool:
        """Whether an element can match a value of this signature."""
        key = (node, id(signature))
        found = self._plausible.get(key)
        if found is None:
            found = node.accepts(signature.kind)
            if found and not self._explain:
                if isinstance(node.element, OpPattern):
                    found = bool(self.orders(node, signature))
                elif isinstance(node.element, Alternatives):
                    found = bool(self.options(node, signature))
            self._plausible[key] = found
        return found

    def options(self, node: Node, signature: Signature) -> tuple[tuple[int, Node], ...]:
        """The alternatives that can match a value of this signature, with their places."""
        key = (node, id(signature))
        found = self._options.get(key)
        if found is None:
            options = enumerate(node.children)
            found = tuple(
                (place, option)
                for place, option in options
                if self._explain or self.plausible(option, signature)
            )
            self._options[key] = found
        return found

    def orders(self, node: Node, signature: Signature) -> tuple[Order, ...]:
        """The orders of inputs that can match an op pattern, as ports; none if the number does not fit."""
        key = (node, id(signature))
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = tuple(
                order
                for order in _all_orders(node.element, signature)
                if self._explain or _fits(node, signature, order)
            )
        return found


def _fits(node: Node, signature: Signature, order: Order) -> bool:
    count = len(signature.inputs)
    kinds = (signature.inputs[port] if port < count else None for port in order)
    return all(child.accepts(kind) for child, kind in zip(node.children, kinds, strict=True))


def _all_orders(element: object, signature: Signature) -> list[Order]:
    """One order, or all of them if every type of ``element`` is commutative."""
    assert isinstance(element, OpPattern) and signature.kind is not None
    given, wanted = len(signature.inputs), len(element.inputs)
    domain, op_type = signature.kind
    if given > wanted and not element.open_ended:
        parameters = PARAMETER_PORTS.get(op_type, {}).values() if not domain else ()
        extra = (port for port in range(wanted, given) if signature.inputs[port] is not None)
        if any(port not in parameters for port in extra):
            return []
    if wanted < 2 or element.open_ended or element.domain or op_type not in COMMUTATIVE:
        return [tuple(range(wanted))]
    return list(permutations(range(wanted)))
