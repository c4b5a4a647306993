"""What can match where, found bottom-up: a tree automaton over the terms of many patterns at once.

The state of a value is the set of terms that it can match. It follows from what computes the value and from
the states of the inputs, so it is found once per distinct situation, of which a graph has few however large
it is (Hoffmann and O'Donnell, "Pattern matching in trees", J. ACM 29(1), 1982). What the automaton leaves out
is what takes two places to judge: parts that must be the same value, conditions on values and on large
constants, and who else reads what is inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from onnx import TensorProto

from qc.ir.facts.op_table import traits_of
from qc.ir.tensor_ref import TensorRef

from .conditions import accepts_data
from .pattern import Absent, Alternatives, AnyValue, Constant, OpPattern, Output, Pattern, Results
from .term import Term, Test, children_first

Order = tuple[int, ...]


class State:
    """The terms that a value can match. Equal ones are one object."""

    __slots__ = ("terms",)

    def __init__(self, terms: frozenset[Term]) -> None:
        self.terms = terms


class Situation(NamedTuple):
    """What decides what an output of an op can match.

    Attributes:
        kind: the op.
        output: which output it is, counting those that are left out.
        is_first: whether it is the first that is not left out.
        inputs: the states of the inputs, without those left out at the end.
        facts: the outcome of the tests of :meth:`Automaton.tests`.
    """

    kind: tuple[str, str]
    output: int
    is_first: bool
    inputs: tuple[State, ...]
    facts: tuple[bool, ...]


class Automaton:
    """Finds states. It knows patterns and no graph, so it serves many graphs and remembers what it found.

    Attributes:
        absent: the state of an input that is left out.
        opaque: the state of a value of which nothing is known.
        tests: the attributes of an op that a situation must tell about, and what they must be.
    """

    def __init__(self, roots: Iterable[Term]) -> None:
        self.tests: dict[tuple[str, str], tuple[Test, ...]] = {}
        self._by_kind: dict[tuple[str, str], list[tuple[Term, tuple[int, ...]]]] = {}
        self._above: dict[Term, list[Term]] = {}
        self._states: dict[frozenset[Term], State] = {}
        self._found: dict[Situation, State] = {}
        self._of_content: dict[object, State] = {}
        by_type: dict[type[Pattern], list[Term]] = {}
        for term in children_first(roots):
            by_type.setdefault(type(term.element), []).append(term)
            # Of several results only the first is judged, at which matching starts.
            for child in term.children[:1] if isinstance(term.element, Results) else term.children:
                self._above.setdefault(child, []).append(term)
        for term in by_type.get(OpPattern, ()):
            self._add_op(term)
        self._constants = by_type.get(Constant, [])
        self._any = by_type.get(AnyValue, [])
        self.absent = State(self._closed(by_type.get(Absent, [])).terms)  # a state that no value shares
        self.opaque = self._closed(self._any)

    def _add_op(self, term: Term) -> None:
        for kind in sorted(kind for kind in term.kinds if kind is not None):
            tests = {(type(test[1]), test): None for test in (*self.tests.get(kind, ()), *term.tests)}
            places = tuple(list(tests).index((type(test[1]), test)) for test in term.tests)
            self.tests[kind] = tuple(test for _, test in tests)
            self._by_kind.setdefault(kind, []).append((term, places))

    def of_constant(self, data: TensorRef) -> State:
        """The state of a constant. Of one with several elements, its conditions are taken to hold."""
        content = _content(data)
        found = self._of_content.get(content)
        if found is None:
            fitting = [term for term in self._constants if _can_hold(term, data, content)]
            found = self._of_content[content] = self._closed([*self._any, *fitting])
        return found

    def of_output(self, situation: Situation) -> State:
        """The state of an output of an op."""
        found = self._found.get(situation)
        if found is None:
            ops = [
                term
                for term, has_attributes in self.op_terms(situation)
                if has_attributes and self.orders(term, situation.kind, situation.inputs)
            ]
            outputs = [
                above
                for term in ops
                for above in self._above.get(term, ())
                if isinstance(above.element, Output) and above.element.index == situation.output
            ]
            found = self._closed([*self._any, *(ops if situation.is_first else ()), *outputs])
            self._found[situation] = found
        return found

    def op_terms(self, situation: Situation) -> Iterator[tuple[Term, bool]]:
        """The op patterns for such an op, each with whether the attributes are what it wants."""
        for term, places in self._by_kind.get(situation.kind, ()):
            yield term, all(situation.facts[place] for place in places)

    def alternatives(self, term: Term) -> Iterator[Term]:
        """The terms that ``term`` is an alternative of."""
        for above in self._above.get(term, ()):
            if isinstance(above.element, (Alternatives, Results)):
                yield above

    def orders(self, term: Term, kind: tuple[str, str], inputs: tuple[State, ...]) -> tuple[Order, ...]:
        """The orders in which the inputs of an op can match those of an op pattern, as ports."""
        present = tuple(state is not self.absent for state in inputs)
        return tuple(
            order
            for order in all_orders(term.element, kind, present)
            if all(
                child in (inputs[port] if port < len(inputs) else self.absent).terms
                for port, child in zip(order, term.children, strict=True)
            )
        )

    def producers(self, term: Term, state: State) -> tuple[Term, ...]:
        """The op patterns that can match what computes a value of that state which matches ``term``."""
        found: dict[Term, None] = {}
        pending = [term]
        while pending:
            term = pending.pop()
            if isinstance(term.element, OpPattern):
                found[term] = None
            elif isinstance(term.element, (Output, Results)):
                pending.append(term.children[0])
            else:
                pending.extend(child for child in term.children if child in state.terms)
        return tuple(found)

    def _closed(self, terms: Iterable[Term]) -> State:
        """The state with these terms and all that they are an alternative of."""
        found = set(terms)
        pending = list(found)
        while pending:
            for above in self.alternatives(pending.pop()):
                if above not in found:
                    found.add(above)
                    pending.append(above)
        return self._states.setdefault(frozenset(found), State(frozenset(found)))


def all_orders(element: Pattern, kind: tuple[str, str], present: Sequence[bool]) -> Iterable[Order]:
    """The orders in which inputs can be tried; none if their number does not fit.

    Args:
        element: the pattern of the op.
        kind: the op.
        present: which inputs are not left out, without the omitted ones at the end.
    """
    assert isinstance(element, OpPattern)
    given, wanted = len(present), len(element.inputs)
    domain, op_type = kind
    traits = traits_of(op_type, domain)
    if given > wanted and not element.open_ended:
        parameters = traits.parameters.values()
        if any(present[port] and port not in parameters for port in range(wanted, given)):
            return ()
    if not traits.commutative:
        return (tuple(range(wanted)),)
    return permutations(range(max(given, wanted) if element.open_ended else wanted), wanted)


def _content(data: TensorRef) -> tuple[object, ...] | None:
    """What tells a one-element constant from others; None for all the rest."""
    if data.size != 1 or data.data_type == TensorProto.STRING:
        return None
    return data.data_type, data.shape, data.numpy().tobytes()


def _can_hold(term: Term, data: TensorRef, content: object) -> bool:
    assert isinstance(term.element, Constant)
    return accepts_data(term.element, data) if content is not None else term.element.number is None
