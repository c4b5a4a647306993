"""What the matcher sees of a graph: each fact read once, and what is worth trying where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Value
from qc.ir.tensor_ref import TensorRef

from .attributes import attribute_of, normalized
from .automaton import Automaton, Situation, State, all_orders
from .compiled import Node
from .conditions import equal_attributes
from .parameters import UNKNOWN
from .pattern import AttributeTest, Results
from .term import NO_OP, Kind, Term, Test

Operands = tuple[Value | None, ...]
Order = tuple[int, ...]


class View:
    """A graph as the matcher sees it, as long as it does not change. Rules nothing out but by op type.

    Attributes:
        prunes: whether attempts that must fail are ruled out beforehand, so that nobody learns why.
    """

    prunes = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs: dict[Op, Operands] = {}
        self._producers: dict[Value | None, Op | None] = {None: None}
        self._users: dict[Value, tuple[Op, ...]] = {}
        self._constants: dict[Value, TensorRef | None] = {}
        self._attributes: dict[tuple[Op, str], Any] = {}
        self._positions: dict[Op, int] = {}

    @property
    def positions(self) -> dict[Op, int]:
        """The place of every op in the topological order."""
        if not self._positions:
            self._positions = {op: index for index, op in enumerate(self.graph.ops())}
        return self._positions

    def producer(self, value: Value | None) -> Op | None:
        """The op that computes ``value`` (None: an input that is left out)."""
        if value is not None and value not in self._producers:
            self._producers[value] = self.graph.producer(value)
        return self._producers[value]

    def inputs(self, op: Op) -> Operands:
        """The inputs of ``op`` by port, without the omitted ones at the end."""
        found = self._inputs.get(op)
        if found is None:
            found = self.graph.op_inputs(op)
            while found and found[-1] is None:
                found = found[:-1]
            self._inputs[op] = found
        return found

    def users(self, value: Value) -> tuple[Op, ...]:
        """The ops that read ``value``, also inside their subgraphs, each once."""
        found = self._users.get(value)
        if found is None:
            found = tuple(dict.fromkeys(use.op for use in self.graph.uses(value)))
            self._users[value] = found
        return found

    def first_output(self, op: Op) -> Value | None:
        """The first output that is not left out."""
        return next((value for value in self.graph.op_outputs(op) if value is not None), None)

    def constant(self, value: Value) -> TensorRef | None:
        """The data of a constant."""
        if value not in self._constants:
            self._constants[value] = constant_data(value)
        return self._constants[value]

    def attribute(self, op: Op, name: str) -> Any:
        """The normalized value of an attribute or parameter; UNKNOWN when the op does not fix it."""
        key = (op, name)
        if key not in self._attributes:
            self._attributes[key] = attribute_of(op, name, self.inputs(op))
        return self._attributes[key]

    def has_attribute(self, op: Op, name: str, expected: AttributeTest) -> bool:
        """Whether an attribute has a given value."""
        return equal_attributes(normalized(op, name, expected, self.inputs(op)), self.attribute(op, name))

    def kind(self, value: Value | None) -> Kind:
        """What computes a value (None: an input that is left out)."""
        if value is None:
            return None
        op = self.producer(value)
        return NO_OP if op is None else (op.domain, op.op_type)

    def plausible(self, term: Term, value: Value | None) -> bool:
        """Whether it is worth trying to match an element at a value."""
        return term.accepts(self.kind(value))

    def options(self, node: Node, value: Value | None) -> Sequence[tuple[int, Node]]:
        """The alternatives that are worth trying, with their places."""
        return tuple(enumerate(node.children))

    def orders(self, node: Node, op: Op) -> Iterable[Order]:
        """The orders of inputs that are worth trying, as ports; none if the number does not fit."""
        present = [value is not None for value in self.inputs(op)]
        return all_orders(node.element, (op.domain, op.op_type), present)


class Lookahead(View):
    """A graph with the states of all its values, so that nearly all attempts that must fail never start.

    Attributes:
        automaton: what the states come from.
        situations: by op, what decides what its first output can match.
    """

    prunes = True

    def __init__(self, graph: Graph, automaton: Automaton) -> None:
        super().__init__(graph)
        self.automaton = automaton
        self._states: dict[Value, State] = {}
        self.situations: dict[Op, Situation] = {}
        self._options: dict[tuple[Node, State], tuple[tuple[int, Node], ...]] = {}
        self._orders: dict[tuple[Node, tuple[State, ...]], tuple[Order, ...]] = {}
        self._steps: dict[tuple[Term, tuple[State, ...]], tuple[tuple[int, Term], ...]] = {}
        for op in graph.ops():
            self._look_at(op)

    def _look_at(self, op: Op) -> None:
        """Finds the states of the outputs of ``op``."""
        states = tuple([self.state(value) for value in self.inputs(op)])
        kind = (op.domain, op.op_type)
        facts = tuple([self._holds(op, test) for test in self.automaton.tests.get(kind, ())])
        for index, value in enumerate(self.graph.op_outputs(op)):
            if value is None:
                continue
            self._producers[value] = op
            situation = Situation(kind, index, op not in self.situations, states, facts)
            self.situations.setdefault(op, situation)
            if kind == ("", "Constant"):
                self._states[value] = self._of_leaf(value)
            else:
                self._states[value] = self.automaton.of_output(situation)

    def _holds(self, op: Op, test: Test) -> bool:
        name, expected = test
        if callable(expected):
            found = self.attribute(op, name)
            return found is not UNKNOWN and expected(found)
        return self.has_attribute(op, name, expected)

    def _of_leaf(self, value: Value) -> State:
        data = self.constant(value)
        return self.automaton.opaque if data is None else self.automaton.of_constant(data)

    def state(self, value: Value | None) -> State:
        """The state of a value (None: an input that is left out)."""
        if value is None:
            return self.automaton.absent
        found = self._states.get(value)
        if found is None:
            found = self._states[value] = self._of_leaf(value)
        return found

    def plausible(self, term: Term, value: Value | None) -> bool:
        return term in self.state(value).terms

    def reach(self, root: Term, result: Value) -> int:
        """How many ops a match with this (main) result can choose from; it has no more than these."""
        producer = self._producers[result]
        assert producer is not None
        further = root.children[1:] if isinstance(root.element, Results) else ()
        pending = [(producer, term) for term in self.automaton.producers(root, self.state(result))]
        seen = set(pending)
        while pending:
            op, term = pending.pop()
            inputs = self._inputs[op]
            for port, child in self._steps_from(op, term):
                producer = self._producers[inputs[port]]
                if producer is not None and (producer, child) not in seen:
                    seen.add((producer, child))
                    pending.append((producer, child))
        return len({op for op, _ in seen}) + sum(term.size for term in further)

    def _steps_from(self, op: Op, term: Term) -> tuple[tuple[int, Term], ...]:
        """From an op that matches ``term``, the inputs and the op patterns that their producers can match."""
        states = self.situations[op].inputs
        found = self._steps.get((term, states))
        if found is None:
            orders = self.automaton.orders(term, (op.domain, op.op_type), states)
            steps = (
                (port, producer)
                for order in orders
                for child, port in zip(term.children, order, strict=True)
                if port < len(states)
                for producer in self.automaton.producers(child, states[port])
            )
            found = self._steps[term, states] = tuple(dict.fromkeys(steps))
        return found

    def options(self, node: Node, value: Value | None) -> Sequence[tuple[int, Node]]:
        state = self.state(value)
        found = self._options.get((node, state))
        if found is None:
            options = enumerate(node.children)
            found = tuple((place, option) for place, option in options if option.term in state.terms)
            self._options[node, state] = found
        return found

    def orders(self, node: Node, op: Op) -> Sequence[Order]:
        states = self.situations[op].inputs
        key = (node, states)
        found = self._orders.get(key)
        if found is None:
            found = self._orders[key] = self.automaton.orders(node.term, (op.domain, op.op_type), states)
        return found


@lru_cache(maxsize=64)
def automaton_of(roots: tuple[Term, ...]) -> Automaton:
    """The automaton for these terms, made once."""
    return Automaton(roots)
