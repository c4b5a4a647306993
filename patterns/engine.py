"""The matcher: rooted at the op that computes the result, complete, without recursion over graph depth.

What an element of a pattern can match at a value depends only on the bindings of those of its parts that
are shared with the rest of the pattern (its interface, see :mod:`qc.patterns.program`). So its solutions
are computed once per (element, value, interface bindings), lazily, and equal ones are merged. That makes
backtracking over operand orders and alternatives complete without growing exponentially: a failure is
remembered, and the two orders of a symmetric sub-pattern count once.

A match is valid only if every value made inside, except the result, is used inside only and is not an
output of the graph. This is part of matching: if one solution breaks it, the next one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from qc.ir.graph import Graph, Op, Value

from .attributes import PARAMETER_PORTS, UNKNOWN, attribute_of, constant_data, normalized, scalar_of
from .mismatch import Failure
from .pattern import DEFAULT_TOLERANCE, Absent, Alternatives, AnyValue, Attribute, Constant, OpPattern, Output, Pattern
from .program import Program

COMMUTATIVE = frozenset(
    {"Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"}
)

Bindings = tuple[object, ...]


class Solution(NamedTuple):
    """One way to match an element: what its slots hold, and the ops it covers."""

    bindings: Bindings
    ops: frozenset[Op]


class Engine:
    """Matches patterns on one graph, as long as the graph does not change.

    Args:
        graph: the graph.
        explain: whether to record why attempts fail; slower.
    """

    def __init__(self, graph: Graph, explain: bool = False) -> None:
        self.graph = graph
        self.explain = explain
        self._memo: dict[tuple[object, ...], _Attempt] = {}
        self._inputs: dict[int, tuple[Value | None, ...]] = {}
        self._outputs = frozenset(id(value) for value in graph.outputs)

    def solutions(self, program: Program, op: Op) -> Iterator[tuple[Value, Solution]]:
        """All distinct ways to match the pattern with a result computed by ``op``, interior uses checked."""
        for result in self.graph.op_outputs(op):
            if result is None:
                continue
            attempt = self.attempt(program, result)
            for solution in attempt:
                leak = self._leak(solution.ops, op)
                if leak is None:
                    yield result, solution
                elif self.explain:
                    attempt.fail(self._leak_failure(program, solution, leak))

    def attempt(self, program: Program, result: Value) -> _Attempt:
        """The memoized attempt to match the whole pattern at a value."""
        return self._solve(program, program.root, result, (None,) * program.width)

    def inputs(self, op: Op) -> tuple[Value | None, ...]:
        """The inputs of ``op`` by port, without the omitted ones at the end."""
        found = self._inputs.get(op.id)
        if found is None:
            found = self.graph.op_inputs(op)
            while found and found[-1] is None:
                found = found[:-1]
            self._inputs[op.id] = found
        return found

    # -- elements -----------------------------------------------------------------------------------

    def _solve(self, program: Program, element: Pattern, value: Value | None, bound: Bindings) -> _Attempt:
        """The ways to match ``element`` at ``value`` (None: an input that is left out)."""
        slot = program.slots.get(element)
        if slot is not None and bound[slot] is not None:
            return self._same(element, bound[slot], value)
        if not element.children:
            return self._leaf(program, element, value, slot)
        if isinstance(element, OpPattern):
            refused = self._refuse(element, value)
            if refused is not None:
                return refused
        interface = program.interface[element]
        key = (element, value, program, *[bound[index] for index in interface])
        attempt = self._memo.get(key)
        if attempt is None:
            start: list[object] = [None] * program.width
            for index in interface:
                start[index] = bound[index]
            attempt = self._memo[key] = _Attempt()
            attempt.source = self._expand(program, element, value, tuple(start), slot, attempt)
        return attempt

    def _same(self, element: Pattern, expected: object, value: Value | None) -> _Attempt:
        if expected is value or (expected is ABSENT and value is None):
            return _MATCHED
        if not self.explain:
            return _FAILED
        return _failed(Failure(0, 2, element, value, f"the same value as before, {_show(expected)}", _show(value)))

    def _leaf(self, program: Program, element: Pattern, value: Value | None, slot: int | None) -> _Attempt:
        if isinstance(element, Absent):
            expected = None if value is None else "no input"
        elif value is None:
            expected = "an input"
        elif isinstance(element, Constant):
            expected = _refuse_constant(element, value)
        else:
            assert isinstance(element, AnyValue)
            accepted = element.where is None or element.where(value)
            expected = None if accepted else f"a value with {getattr(element.where, '__name__', 'a condition')}"
        if expected is not None:
            rank = 2 if isinstance(element, Constant) and value is not None and constant_data(value) else 0
            return _failed(Failure(0, rank, element, value, expected, _show(value))) if self.explain else _FAILED
        if slot is None:
            return _MATCHED
        bindings = (None,) * slot + (value,) + (None,) * (program.width - slot - 1)
        return _done([Solution(bindings, frozenset())])

    def _refuse(self, element: OpPattern, value: Value | None) -> _Attempt | None:
        """A failed attempt when ``value`` is not computed by an op of the right type."""
        producer = self.graph.producer(value) if value is not None else None
        if producer is not None and producer.op_type in element.op_types and producer.domain == element.domain:
            return None
        if not self.explain:
            return _FAILED
        return _failed(Failure(0, 0, element, value, " or ".join(element.op_types), _show(value)))

    def _expand(
        self,
        program: Program,
        element: Pattern,
        value: Value | None,
        bound: Bindings,
        slot: int | None,
        attempt: _Attempt,
    ) -> Iterator[Solution]:
        """The solutions of an element with parts, computed one after the other."""
        found: Iterator[Solution]
        if isinstance(element, Alternatives):
            found = self._alternatives(program, element, value, bound, attempt)
        elif isinstance(element, Output):
            found = self._output(program, element, value, bound, attempt)
        else:
            assert isinstance(element, OpPattern) and value is not None
            found = self._op(program, element, value, bound, attempt)
        held = ABSENT if value is None else value
        for solution in found:
            if slot is not None:
                solution = Solution(_bind(solution.bindings, slot, held), solution.ops)
            yield solution

    def _alternatives(
        self, program: Program, element: Alternatives, value: Value | None, bound: Bindings, attempt: _Attempt
    ) -> Iterator[Solution]:
        choice = program.choices.get(element)
        for index, option in enumerate(element.options):
            inner = self._solve(program, option, value, bound)
            for solution in inner:
                merged = _merge(bound, solution.bindings)
                if choice is not None:
                    merged = _bind(merged, choice, element.labels[index])
                yield Solution(merged, solution.ops)
            if self.explain:
                attempt.inherit(inner, 0)

    def _output(
        self, program: Program, element: Output, value: Value | None, bound: Bindings, attempt: _Attempt
    ) -> Iterator[Solution]:
        producer = self.graph.producer(value) if value is not None else None
        outputs = self.graph.op_outputs(producer) if producer is not None else ()
        if element.index >= len(outputs) or outputs[element.index] is not value:
            if self.explain:
                attempt.fail(Failure(0, 1, element, value, f"output {element.index} of an op", _show(value)))
            return
        inner = self._solve(program, element.source, outputs[0], bound)
        for solution in inner:
            yield Solution(_merge(bound, solution.bindings), solution.ops)
        if self.explain:
            attempt.inherit(inner, 0)

    def _op(
        self, program: Program, element: OpPattern, value: Value, bound: Bindings, attempt: _Attempt
    ) -> Iterator[Solution]:
        op = self.graph.producer(value)
        assert op is not None
        after = self._attributes(program, element, op, value, bound, attempt)
        if after is None:
            return
        given = self._positional(element, op)
        if given is None or self.graph.op_outputs(op)[0] is not value:
            if self.explain:
                expected = f"{element.op_types[0]} with {len(element.inputs)} inputs, first output"
                found = f"{_show(value)} with {len(self.inputs(op))} inputs"
                attempt.fail(Failure(0, 1, element, value, expected, found))
            return
        start = Solution(after, frozenset((op,)))
        for order in _orders(element, given):
            yield from self._join(program, element, order, 0, start, attempt)

    def _join(
        self,
        program: Program,
        element: OpPattern,
        order: tuple[Value | None, ...],
        port: int,
        state: Solution,
        attempt: _Attempt,
    ) -> Iterator[Solution]:
        """Matches the inputs from ``port`` on, under what the inputs before it have bound."""
        if port == len(order):
            yield state
            return
        inner = self._solve(program, element.inputs[port], order[port], state.bindings)
        for solution in inner:
            merged = Solution(_merge(state.bindings, solution.bindings), state.ops | solution.ops)
            yield from self._join(program, element, order, port + 1, merged, attempt)
        if self.explain:
            attempt.inherit(inner, len(state.ops))

    # -- ops ----------------------------------------------------------------------------------------

    def _positional(self, element: OpPattern, op: Op) -> tuple[Value | None, ...] | None:
        """The inputs to match by position, one per input of the pattern; None when the number does not fit."""
        inputs, wanted = self.inputs(op), len(element.inputs)
        if len(inputs) < wanted:
            return inputs + (None,) * (wanted - len(inputs))
        if len(inputs) == wanted or element.open_ended:
            return inputs[:wanted]
        parameters = PARAMETER_PORTS.get(op.op_type, {}).values() if not op.domain else ()
        extra = (port for port in range(wanted, len(inputs)) if inputs[port] is not None)
        return inputs[:wanted] if all(port in parameters for port in extra) else None

    def _attributes(
        self, program: Program, element: OpPattern, op: Op, value: Value, bound: Bindings, attempt: _Attempt
    ) -> Bindings | None:
        """The bindings after the attributes; None when one does not fit."""
        inputs = self.inputs(op)
        for name, test in element.attributes:
            found = attribute_of(op, name, inputs)
            if isinstance(test, Attribute):
                slot = program.slots[test]
                held = bound[slot]
                fits = found is not UNKNOWN and (test.where is None or test.where(found))
                fits = fits and (held is None or held == (found,))
                if fits:
                    bound = _bind(bound, slot, (found,))
            else:
                fits = _equal(normalized(op, name, test, inputs), found)
            if not fits:
                if self.explain:
                    expected = f"{name}={test.name if isinstance(test, Attribute) else test!r}"
                    attempt.fail(Failure(0, 2, element, value, expected, f"{name}={found!r} in {_show(value)}"))
                return None
        return bound

    def _leak(self, ops: frozenset[Op], root: Op) -> tuple[Value, Op | None] | None:
        """A value made inside that is seen outside, with the op that reads it (None: a graph output)."""
        graph = self.graph.nx
        ids = {op.id for op in ops}
        for op in ops:
            if op is root:
                continue
            for value_id in graph.succ[op.id]:
                value: Value = graph.nodes[value_id]["payload"]
                if id(value) in self._outputs:
                    return value, None
                readers = graph.succ[value_id]
                if len(readers) > len(ids) or any(reader not in ids for reader in readers):
                    outside = next(reader for reader in readers if reader not in ids)
                    return value, graph.nodes[outside]["payload"]
        return None

    def _leak_failure(self, program: Program, solution: Solution, leak: tuple[Value, Op | None]) -> Failure:
        value, reader = leak
        found = f"'{value.name}' is read by {reader.label}" if reader else f"'{value.name}' is an output of the graph"
        return Failure(len(solution.ops), 3, program.root, value, "a value that only the match uses", found)


class _Attempt:
    """The lazily computed solutions of one element at one value, and why the best failed try failed."""

    __slots__ = ("_known", "failure", "found", "source")

    def __init__(self) -> None:
        self.found: list[Solution] = []
        self._known: set[Solution] = set()
        self.source: Iterator[Solution] | None = None
        self.failure: Failure | None = None

    def __iter__(self) -> Iterator[Solution]:
        index = 0
        while index < len(self.found) or self._advance():
            yield self.found[index]
            index += 1

    def _advance(self) -> bool:
        """Computes the next solution that is not equal to an earlier one."""
        if self.source is None:
            return False
        for solution in self.source:
            if solution not in self._known:
                self._known.add(solution)
                self.found.append(solution)
                return True
        self.source = None
        return False

    def fail(self, failure: Failure) -> None:
        """Remembers the failure that got furthest."""
        if self.failure is None or failure.score > self.failure.score:
            self.failure = failure

    def inherit(self, inner: _Attempt, before: int) -> None:
        """Takes over the failure of a part that was tried after ``before`` ops had matched."""
        if inner.failure is not None:
            self.fail(inner.failure._replace(matched=inner.failure.matched + before))


class _Absence:
    """What a slot holds when its element matched an input that is left out."""


ABSENT = _Absence()


def _done(found: list[Solution]) -> _Attempt:
    attempt = _Attempt()
    attempt.found = found
    return attempt


def _failed(failure: Failure) -> _Attempt:
    attempt = _Attempt()
    attempt.failure = failure
    return attempt


_FAILED = _Attempt()
_MATCHED = _done([Solution((), frozenset())])


def _bind(bindings: Bindings, slot: int, held: object) -> Bindings:
    return (*bindings[:slot], held, *bindings[slot + 1 :])


def _merge(bound: Bindings, more: Bindings) -> Bindings:
    if not more:
        return bound
    return tuple(old if new is None else new for old, new in zip(bound, more, strict=True))


def _orders(element: OpPattern, inputs: tuple[Value | None, ...]) -> list[tuple[Value | None, ...]]:
    """The operand orders to try: all distinct ones if every type of ``element`` is commutative."""
    if len(inputs) < 2 or element.open_ended or not COMMUTATIVE.issuperset(element.op_types) or element.domain:
        return [inputs]
    return list(dict.fromkeys(permutations(inputs)))


def _refuse_constant(element: Constant, value: Value) -> str | None:
    """What was expected, if the value is not the constant that ``element`` describes."""
    data = constant_data(value)
    if data is None:
        return "a constant"
    if element.number is not None:
        found = scalar_of(data)
        if found is None or not _close(found, element.number, element.tolerance):
            return f"the constant {element.number}"
    if element.where is not None and not element.where(data):
        return f"a constant with {getattr(element.where, '__name__', 'a condition')}"
    return None


def _close(found: float, expected: float, tolerance: float) -> bool:
    return found == expected or abs(found - expected) <= tolerance * abs(expected)


def _equal(expected: object, found: object) -> bool:
    """Whether attributes agree; a one-element list counts as its element."""
    if isinstance(found, tuple) and len(found) == 1 and not isinstance(expected, tuple):
        found = found[0]
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return _close(found, expected, DEFAULT_TOLERANCE)
    return expected == found


def _show(value: object) -> str:
    """How a value is called in an explanation: by what computes it and by its name."""
    if not isinstance(value, Value):
        return "no input"
    producer = value.graph.producer(value)
    if producer is not None and not producer.is_type("Constant"):
        return f"{producer.op_type} '{value.name}'"
    data = constant_data(value)
    if data is None:
        return f"the input '{value.name}'"
    content = scalar_of(data)
    return f"the constant '{value.name}' = {content:.7g}" if content is not None else f"the constant '{value.name}'"
