"""The matcher: rooted at the op that computes the result, complete, without recursion over graph depth.

What an element of a pattern can match at a value depends only on the bindings of those of its parts that
are shared with the rest of the pattern (its interface, see :mod:`qc.patterns.compiled`). So its solutions
are computed once per (element, value, interface bindings), lazily, and equal ones are merged. That makes
backtracking over operand orders and alternatives complete without growing exponentially: a failure is
remembered, and the two orders of a symmetric sub-pattern count once.

A match is valid only if every value made inside, except the results, is used inside only and is not an
output of the graph. This is part of matching: if one solution breaks it, the next one is tried. (Keeping
one solution per element would not be enough, because it may cover other ops than the next one does.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .attempt import FAILED, MATCHED, NO_OPS, Attempt, Solution, bind, extended, held, merge
from .compiled import Bindings, CompiledPattern, PatternNode
from .conditions import accepts_data, accepts_value, adds_axes
from .lookahead import Operands, View
from .mismatch import FailedTry, Reason
from .parameters import UNKNOWN
from .pattern import Absent, Alternatives, AnyValue, Attribute, Constant, OpPattern, Output, Pattern
from .results import candidates, has_detour


class _Place(NamedTuple):
    """An element that is being matched at a value, with the attempt that collects the outcome."""

    node: PatternNode
    value: Value | None
    attempt: Attempt


class Search:
    """The search for the ways to match one pattern with one result.

    Args:
        view: the graph. One that prunes makes the search fast, one that does not makes it record failures.
        pattern: the pattern.
        result: the value that the (main) result of the pattern must be.

    Attributes:
        attempt: the attempt to match the whole, once the search has begun.
    """

    def __init__(self, view: View, pattern: CompiledPattern, result: Value) -> None:
        self._view = view
        self._graph = view.graph
        self._explains = not view.prunes
        self._pattern = pattern
        self._result = result
        self._memo: dict[tuple[object, ...], Attempt] = {}
        self.attempt = FAILED

    def __iter__(self) -> Iterator[Solution]:
        """All ways to match, the use of inner values checked. What was remembered is dropped at the end."""
        try:
            nothing = (None,) * self._pattern.width
            self.attempt = self._solve(self._pattern.root, self._result, nothing)
            for solution in self.attempt:
                failure = self._exposed(solution)
                if failure is None:
                    yield solution
                else:
                    self.attempt.fail(failure)
        finally:
            for attempt in self._memo.values():
                attempt.source = None  # generators and attempts hold each other
            self._memo.clear()

    # -- elements -----------------------------------------------------------------------------------

    def _solve(self, node: PatternNode, value: Value | None, bound: Bindings) -> Attempt:
        """The ways to match an element at ``value`` (None: an input that is left out)."""
        slot = node.slot
        if slot is not None and bound[slot] is not None:
            if bound[slot] is held(value):
                return MATCHED
            return self._refused(Reason.OTHER_VALUE, node, value, bound[slot])
        view = self._view
        if not view.plausible(node.term, value):
            reason = Reason.NOT_CONSTANT if isinstance(node.element, Constant) else Reason.WRONG_OP
            return self._refused(reason, node, value)
        if node.is_leaf:
            return self._leaf(node, value, bound)
        if node.is_transparent:
            options = view.options(node, value)
            if len(options) == 1:
                return self._solve(options[0][1], value, bound)
        key = (node, value, *[bound[index] for index in node.interface])
        attempt = self._memo.get(key)
        if attempt is None:
            attempt = self._memo[key] = Attempt()
            start: list[object] = [None] * len(bound)
            for index in node.interface:
                start[index] = bound[index]
            if slot is not None:
                start[slot] = held(value)
            attempt.source = self._expand(_Place(node, value, attempt), tuple(start))
        return attempt

    def _leaf(self, node: PatternNode, value: Value | None, bound: Bindings) -> Attempt:
        refusal = self._refusal(node.element, value)
        if refusal is not None:
            return self._refused(refusal, node, value)
        if node.slot is None:
            return MATCHED
        return Attempt([Solution(bind((None,) * len(bound), node.slot, held(value)), NO_OPS)])

    def _refusal(self, element: Pattern, value: Value | None) -> Reason | None:
        """What is wrong, if a leaf of the pattern does not accept the value."""
        if value is None or isinstance(element, Absent):
            return None
        assert isinstance(element, (AnyValue, Constant))
        if element.where is None and self._view.prunes:
            return None
        if isinstance(element, AnyValue):
            return None if accepts_value(element, value) else Reason.REFUSED_VALUE
        data = self._view.constant[value]
        if data is None:
            return Reason.NOT_CONSTANT
        return None if accepts_data(element, data) else Reason.REFUSED_VALUE

    def _refused(self, reason: Reason, node: PatternNode, value: Value | None, *detail: object) -> Attempt:
        """A failed attempt; says why only when asked to explain."""
        if not self._explains:
            return FAILED
        return Attempt(failure=FailedTry(NO_OPS, reason, node.element, value, detail))

    def _expand(self, place: _Place, bound: Bindings) -> Iterator[Solution]:
        """The solutions of an element with parts, one after the other; ``bound`` holds its own value."""
        element = place.node.element
        if isinstance(element, OpPattern):
            assert place.value is not None
            return self._op(place, place.value, bound)
        if isinstance(element, Alternatives):
            return self._alternatives(place, element, bound)
        if isinstance(element, Output):
            return self._output(place, element, bound)
        return self._results(place, bound)

    def _alternatives(self, place: _Place, element: Alternatives, bound: Bindings) -> Iterator[Solution]:
        node = place.node
        for index, option in self._view.options(node, place.value):
            inner = self._solve(option, place.value, bound)
            for solution in inner:
                merged = merge(bound, solution.bindings)
                if node.choice is not None:
                    merged = bind(merged, node.choice, element.labels[index])
                yield Solution(merged, solution.ops)
            taken = ((element.name, element.labels[index]),) if element.labels else ()
            place.attempt.inherit(inner, choices=taken)

    def _output(self, place: _Place, element: Output, bound: Bindings) -> Iterator[Solution]:
        producer = self._view.producer[place.value]
        outputs = producer.outputs if producer is not None else ()
        if element.index >= len(outputs) or outputs[element.index] is not place.value:
            place.attempt.inherit(self._refused(Reason.WRONG_OUTPUT, place.node, place.value, element.index))
            return
        assert producer is not None
        inner = self._solve(place.node.children[0], self._view.first_output(producer), bound)
        for solution in inner:
            yield Solution(merge(bound, solution.bindings), solution.ops)
        place.attempt.inherit(inner)

    # -- ops ----------------------------------------------------------------------------------------

    def _op(self, place: _Place, value: Value, bound: Bindings) -> Iterator[Solution]:
        op = self._view.producer[value]
        assert op is not None
        if op.num_outputs > 1 and value is not self._view.first_output(op):
            place.attempt.inherit(self._refused(Reason.WRONG_OUTPUT, place.node, value, 0))
            return
        after = self._attributes(place, op, bound)
        if after is None:
            return
        inputs, start = self._view.inputs[op], Solution(after, frozenset((op,)))
        tried: set[Operands] = set()
        for order in self._view.orders(place.node, op):
            operands = tuple([inputs[port] if port < len(inputs) else None for port in order])
            if operands in tried:
                continue
            tried.add(operands)
            longer = self._longer_number(place.node, op, operands)
            if longer is None:
                yield from self._join(place, operands, 0, start)
            else:
                place.attempt.inherit(self._refused(Reason.REFUSED_VALUE, *longer))
        if not tried:
            place.attempt.inherit(self._refused(Reason.WRONG_PORTS, place.node, value))

    def _longer_number(
        self, node: PatternNode, op: Op, operands: Operands
    ) -> tuple[PatternNode, Value] | None:
        """A constant that the pattern wants and that gives the result more axes than the data has."""
        wanted = zip(node.children, operands, strict=False)
        for child, value in [pair for pair in wanted if self._is_wanted_constant(*pair)]:
            assert value is not None
            data, others = self._view.constant[value], [other for other in operands if other is not value]
            if data is not None and adds_axes(op, data, others):
                return child, value
        return None

    def _join(self, place: _Place, operands: Operands, port: int, state: Solution) -> Iterator[Solution]:
        """Matches the inputs from ``port`` on, under what the inputs before it have bound."""
        children = place.node.children
        while port < len(operands):
            inner = self._solve(children[port], operands[port], state.bindings)
            if not inner.is_single:
                for solution in inner:
                    yield from self._join(place, operands, port + 1, extended(state, solution))
                self._blame(place, operands, port, state, inner)
                return
            self._blame(place, operands, port, state, inner)
            state = extended(state, inner.found[0])
            port += 1
        yield state

    def _blame(self, place: _Place, operands: Operands, port: int, state: Solution, inner: Attempt) -> None:
        """Takes over why input ``port`` failed, with what matches before and beside it."""
        if inner.failure is None:
            return
        children = place.node.children
        matched = list(zip(children[:port], operands, strict=False))
        for later in range(port + 1, len(operands)) if not inner.found else ():
            beside = next(iter(self._solve(children[later], operands[later], state.bindings)), None)
            if beside is not None:
                state = extended(state, beside)
                matched.append((children[later], operands[later]))
        constants = sum(self._is_wanted_constant(node, value) for node, value in matched)
        user = self._view.producer[place.value]
        choices = self._pattern.taken_options(state.bindings)
        place.attempt.inherit(inner, state.ops, constants, user, operands[port], choices)

    def _is_wanted_constant(self, node: PatternNode, value: Value | None) -> bool:
        """Whether a value is a constant where the pattern does not take just anything."""
        return value is not None and not node.term.anything and self._view.constant[value] is not None

    def _attributes(self, place: _Place, op: Op, bound: Bindings) -> Bindings | None:
        """The bindings after the attributes; None when one does not fit."""
        for name, test, slot in place.node.tests:
            if isinstance(test, Attribute):
                assert slot is not None
                found = self._view.attribute[op, name]
                before = bound[slot]
                if isinstance(before, tuple) and before != (found,):
                    reason, expected = Reason.OTHER_ATTRIBUTE, before[0]
                elif found is UNKNOWN or (test.where is not None and not test.where(found)):
                    reason, expected = Reason.WRONG_ATTRIBUTE, test
                else:
                    bound = bind(bound, slot, (found,))
                    continue
            elif self._view.has_attribute(op, name, test):
                continue
            else:
                reason, expected = Reason.WRONG_ATTRIBUTE, test
            place.attempt.inherit(self._refused(reason, place.node, place.value, name, expected))
            return None
        return bound

    # -- results ------------------------------------------------------------------------------------

    def _results(self, place: _Place, bound: Bindings) -> Iterator[Solution]:
        inner = self._solve(place.node.children[0], place.value, bound)
        for solution in inner:
            yield from self._further(place, 1, Solution(merge(bound, solution.bindings), solution.ops))
        place.attempt.inherit(inner)

    def _further(self, place: _Place, index: int, state: Solution) -> Iterator[Solution]:
        """Finds the results from ``index`` on, which are other values than those before."""
        if index == len(place.node.children):
            yield state
            return
        node = place.node.children[index]
        bound = {
            element: content
            for element, slot in self._pattern.slots.items()
            if isinstance(element, Pattern) and isinstance(content := state.bindings[slot], Value)
        }
        before = [place.value, *self._pattern.further_results(state.bindings, index - 1)]
        values = [value for value in candidates(self._graph, node.element, bound) if value not in before]
        for value in values:
            inner = self._solve(node, value, state.bindings)
            for solution in inner:
                yield from self._further(place, index + 1, extended(state, solution))
            place.attempt.inherit(inner, state.ops)
        if not values:
            place.attempt.fail(FailedTry(state.ops, Reason.NO_RESULT, node.element, None, (index,)))

    def _exposed(self, solution: Solution) -> FailedTry | None:
        """What is wrong if a value made inside, other than the results, is seen outside."""
        root = self._view.producer[self._result]
        others = self._pattern.further_results(solution.bindings)
        element, choices = self._pattern.root.element, self._pattern.taken_options(solution.bindings)
        for op in sorted(solution.ops, key=lambda op: op.id):
            for value in op.outputs if op is not root else ():
                if value is None or value in others:
                    continue
                users = self._view.users[value]
                user = next((each for each in users if each not in solution.ops), None)
                if user is not None or value.is_output:
                    seen = (solution.ops, Reason.USED_OUTSIDE, element, value, (user,))
                    return FailedTry(*seen, choices=choices)
        shown = [*(root.outputs if root is not None else ()), *others]
        if others and has_detour(shown, solution.ops, self._view.positions):
            return FailedTry(solution.ops, Reason.DETOUR, element, self._result, choices=choices)
        return None
