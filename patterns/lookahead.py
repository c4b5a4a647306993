"""What the matcher sees of a graph: each fact read once, and what is worth trying where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Value

from .attributes import attribute_of, normalized
from .automaton import Automaton, Order, Situation, State, all_orders
from .compiled import PatternNode
from .conditions import equal_attributes
from .parameters import UNKNOWN
from .pattern import AttributeTest, Results
from .term import NO_OP, Term, Test

K = TypeVar("K")
V = TypeVar("V")
Operands = tuple[Value | None, ...]
States = tuple[State, ...]


class Facts(dict[K, V], Generic[K, V]):
    """Facts by what they are about, each found when it is first asked for."""

    def __init__(self, find: Callable[[K], V]) -> None:
        self._find = find

    def __missing__(self, key: K) -> V:
        found = self[key] = self._find(key)
        return found


class View:
    """A graph as the matcher sees it, as long as it does not change. Rules nothing out but by op type.

    Attributes:
        prunes: whether attempts that must fail are ruled out beforehand, so that nobody learns why.
        inputs: the inputs of ops by port, without the omitted ones at the end.
        producer: the op that computes a value; None for None, an input that is left out.
        users: the ops that read a value, also inside their subgraphs, each once.
        constant: the data of constants; None for other values.
        attribute: by op and name the normalized value of an attribute or parameter; UNKNOWN when the op does
            not fix it.
    """

    prunes = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = Facts(self._present_inputs)
        self.producer: Facts[Value | None, Op | None] = Facts(lambda value: value.producer if value else None)
        self.users = Facts(self._users)
        self.constant = Facts(constant_data)
        self.attribute = Facts(self._attribute)

    @cached_property
    def positions(self) -> dict[Op, int]:
        """The place of every op in the topological order."""
        return {op: index for index, op in enumerate(self.graph.ops())}

    def _present_inputs(self, op: Op) -> Operands:
        found = op.inputs
        while found and found[-1] is None:
            found = found[:-1]
        return found

    def _users(self, value: Value) -> tuple[Op, ...]:
        return tuple(dict.fromkeys([use.op for use in value.uses]))

    def _attribute(self, key: tuple[Op, str]) -> Any:
        return attribute_of(*key, self.inputs[key[0]])

    def first_output(self, op: Op) -> Value | None:
        """The first output that is not left out."""
        return next((value for value in op.outputs if value is not None), None)

    def has_attribute(self, op: Op, name: str, expected: AttributeTest) -> bool:
        """Whether an attribute has a given value."""
        return equal_attributes(normalized(op, name, expected, self.inputs[op]), self.attribute[op, name])

    def plausible(self, term: Term, value: Value | None) -> bool:
        """Whether it is worth trying to match an element at a value."""
        op = self.producer[value]
        kind = NO_OP if op is None else (op.domain, op.op_type)
        return term.accepts(None if value is None else kind)

    def options(self, node: PatternNode, value: Value | None) -> Sequence[tuple[int, PatternNode]]:
        """The alternatives that are worth trying, with their places."""
        return tuple(enumerate(node.children))

    def orders(self, node: PatternNode, op: Op) -> Sequence[Order]:
        """The orders of inputs that are worth trying, as ports; none if the number does not fit."""
        present = [value is not None for value in self.inputs[op]]
        return tuple(all_orders(node.element, (op.domain, op.op_type), present))


class Lookahead(View):
    """A graph with the states of all its values, so that nearly all attempts that must fail never start.

    Attributes:
        automaton: what the states come from.
        situations: by op, what decides what its first output can match.
        state: the states of values; of None, an input that is left out, too.
    """

    prunes = True

    def __init__(self, graph: Graph, automaton: Automaton) -> None:
        super().__init__(graph)
        self.automaton = automaton
        self.state: Facts[Value | None, State] = Facts(self._of_leaf)
        self.state[None] = automaton.absent
        self.situations: dict[Op, Situation] = {}
        self._options = Facts(self._fitting_options)
        self._orders = Facts(self._fitting_orders)
        self._steps = Facts(self._steps_from)
        for op in graph.ops():
            self._look_at(op)

    def _look_at(self, op: Op) -> None:
        """Finds the states of the outputs of ``op``."""
        states = tuple([self.state[value] for value in self.inputs[op]])
        kind = (op.domain, op.op_type)
        facts = tuple([self._holds(op, test) for test in self.automaton.tests.get(kind, ())])
        for index, value in enumerate(op.outputs):
            if value is None:
                continue
            self.producer[value] = op
            situation = Situation(kind, index, op not in self.situations, states, facts)
            self.situations.setdefault(op, situation)
            if kind != ("", "Constant"):
                self.state[value] = self.automaton.of_output(situation)

    def _holds(self, op: Op, test: Test) -> bool:
        name, expected = test
        if callable(expected):
            found = self.attribute[op, name]
            return found is not UNKNOWN and expected(found)
        return self.has_attribute(op, name, expected)

    def _of_leaf(self, value: Value | None) -> State:
        data = self.constant[value] if value is not None else None
        return self.automaton.opaque if data is None else self.automaton.of_constant(data)

    def plausible(self, term: Term, value: Value | None) -> bool:
        return term in self.state[value].terms

    def options(self, node: PatternNode, value: Value | None) -> Sequence[tuple[int, PatternNode]]:
        return self._options[node, self.state[value]]

    def _fitting_options(self, key: tuple[PatternNode, State]) -> tuple[tuple[int, PatternNode], ...]:
        node, state = key
        options = enumerate(node.children)
        return tuple((place, option) for place, option in options if option.term in state.terms)

    def orders(self, node: PatternNode, op: Op) -> Sequence[Order]:
        situation = self.situations[op]
        return self._orders[node.term, situation.kind, situation.inputs]

    def _fitting_orders(self, key: tuple[Term, tuple[str, str], States]) -> tuple[Order, ...]:
        return self.automaton.orders(*key)

    def reach(self, root: Term, result: Value) -> int:
        """How many ops a match with this (main) result can choose from; it has no more than these."""
        further = root.children[1:] if isinstance(root.element, Results) else ()
        first = self.producer[result]
        assert first is not None
        pending = [(first, term) for term in self.automaton.producers(root, self.state[result])]
        seen = set(pending)
        while pending:
            op, term = pending.pop()
            inputs, situation = self.inputs[op], self.situations[op]
            for port, child in self._steps[term, situation.kind, situation.inputs]:
                producer = self.producer[inputs[port]]
                if producer is not None and (producer, child) not in seen:
                    seen.add((producer, child))
                    pending.append((producer, child))
        return len({op for op, _ in seen}) + sum(term.size for term in further)

    def _steps_from(self, key: tuple[Term, tuple[str, str], States]) -> tuple[tuple[int, Term], ...]:
        """From an op that matches a term, the inputs and the op patterns that their producers can match."""
        term, _, states = key
        steps = (
            (port, producer)
            for order in self._orders[key]
            for child, port in zip(term.children, order, strict=True)
            if port < len(states)
            for producer in self.automaton.producers(child, states[port])
        )
        return tuple(dict.fromkeys(steps))


@lru_cache(maxsize=64)
def automaton_of(roots: tuple[Term, ...]) -> Automaton:
    """The automaton for these terms, made once."""
    return Automaton(roots)
