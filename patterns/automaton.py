"""What can match where, found bottom-up: a tree automaton over the shapes of many patterns at once.

The state of a value is the set of shapes that it can match. It follows from what computes the value and from
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

from qc.ir.tensor_ref import TensorRef

from .conditions import COMMUTATIVE, accepts_data
from .parameters import PARAMETER_PORTS
from .pattern import Absent, Alternatives, AnyValue, Constant, OpPattern, Output, Pattern, Results
from .shape import Shape, Test, children_first

Order = tuple[int, ...]


class State:
    """The shapes that a value can match. Equal ones are one object."""

    __slots__ = ("shapes",)

    def __init__(self, shapes: frozenset[Shape]) -> None:
        self.shapes = shapes


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

    def __init__(self, roots: Iterable[Shape]) -> None:
        self.tests: dict[tuple[str, str], tuple[Test, ...]] = {}
        self._by_kind: dict[tuple[str, str], list[tuple[Shape, tuple[int, ...]]]] = {}
        self._above: dict[Shape, list[Shape]] = {}
        self._states: dict[frozenset[Shape], State] = {}
        self._found: dict[Situation, State] = {}
        self._of_content: dict[object, State] = {}
        by_type: dict[type[Pattern], list[Shape]] = {}
        for shape in children_first(roots):
            by_type.setdefault(type(shape.element), []).append(shape)
            # Of several results only the first is judged, at which matching starts.
            for child in shape.children[:1] if isinstance(shape.element, Results) else shape.children:
                self._above.setdefault(child, []).append(shape)
        for shape in by_type.get(OpPattern, ()):
            self._add_op(shape)
        self._constants = by_type.get(Constant, [])
        self._any = by_type.get(AnyValue, [])
        self.absent = State(self._closed(by_type.get(Absent, [])).shapes)  # a state that no value shares
        self.opaque = self._closed(self._any)

    def _add_op(self, shape: Shape) -> None:
        for kind in sorted(kind for kind in shape.kinds if kind is not None):
            tests = {(type(test[1]), test): None for test in (*self.tests.get(kind, ()), *shape.tests)}
            places = tuple(list(tests).index((type(test[1]), test)) for test in shape.tests)
            self.tests[kind] = tuple(test for _, test in tests)
            self._by_kind.setdefault(kind, []).append((shape, places))

    def of_constant(self, data: TensorRef) -> State:
        """The state of a constant. Of one with several elements, its conditions are taken to hold."""
        content = _content(data)
        found = self._of_content.get(content)
        if found is None:
            fitting = [shape for shape in self._constants if _can_hold(shape, data, content)]
            found = self._of_content[content] = self._closed([*self._any, *fitting])
        return found

    def of_output(self, situation: Situation) -> State:
        """The state of an output of an op."""
        found = self._found.get(situation)
        if found is None:
            ops = [
                shape
                for shape, has_attributes in self.op_shapes(situation)
                if has_attributes and self.orders(shape, situation.kind, situation.inputs)
            ]
            outputs = [
                above
                for shape in ops
                for above in self._above.get(shape, ())
                if isinstance(above.element, Output) and above.element.index == situation.output
            ]
            found = self._closed([*self._any, *(ops if situation.is_first else ()), *outputs])
            self._found[situation] = found
        return found

    def op_shapes(self, situation: Situation) -> Iterator[tuple[Shape, bool]]:
        """The op patterns for such an op, each with whether the attributes are what it wants."""
        for shape, places in self._by_kind.get(situation.kind, ()):
            yield shape, all(situation.facts[place] for place in places)

    def alternatives(self, shape: Shape) -> Iterator[Shape]:
        """The shapes that ``shape`` is an alternative of."""
        for above in self._above.get(shape, ()):
            if isinstance(above.element, (Alternatives, Results)):
                yield above

    def orders(self, shape: Shape, kind: tuple[str, str], inputs: tuple[State, ...]) -> tuple[Order, ...]:
        """The orders in which the inputs of an op can match those of an op pattern, as ports."""
        present = tuple(state is not self.absent for state in inputs)
        return tuple(
            order
            for order in all_orders(shape.element, kind, present)
            if all(
                child in (inputs[port] if port < len(inputs) else self.absent).shapes
                for port, child in zip(order, shape.children, strict=True)
            )
        )

    def makers(self, shape: Shape, state: State) -> tuple[Shape, ...]:
        """The op patterns that can match what computes a value of that state which matches ``shape``."""
        found: dict[Shape, None] = {}
        pending = [shape]
        while pending:
            shape = pending.pop()
            if isinstance(shape.element, OpPattern):
                found[shape] = None
            elif isinstance(shape.element, (Output, Results)):
                pending.append(shape.children[0])
            else:
                pending.extend(child for child in shape.children if child in state.shapes)
        return tuple(found)

    def _closed(self, shapes: Iterable[Shape]) -> State:
        """The state with these shapes and all that they are an alternative of."""
        found = set(shapes)
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
    if given > wanted and not element.open_ended:
        parameters = PARAMETER_PORTS.get(op_type, {}).values() if not domain else ()
        if any(present[port] and port not in parameters for port in range(wanted, given)):
            return ()
    if domain or op_type not in COMMUTATIVE:
        return (tuple(range(wanted)),)
    return permutations(range(max(given, wanted) if element.open_ended else wanted), wanted)


def _content(data: TensorRef) -> tuple[object, ...] | None:
    """What tells a one-element constant from others; None for all the rest."""
    if data.size != 1 or data.data_type == TensorProto.STRING:
        return None
    return data.data_type, data.shape, data.numpy().tobytes()


def _can_hold(shape: Shape, data: TensorRef, content: object) -> bool:
    assert isinstance(shape.element, Constant)
    return accepts_data(shape.element, data) if content is not None else shape.element.number is None
