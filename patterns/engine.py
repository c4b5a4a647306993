"""The matcher: rooted at the op that computes the result, complete, without recursion over graph depth.

What an element of a pattern can match at a value depends only on the bindings of those of its parts that
are shared with the rest of the pattern (its interface, see :mod:`qc.patterns.program`). So its solutions
are computed once per (element, value, interface bindings), lazily, and equal ones are merged. That makes
backtracking over operand orders and alternatives complete without growing exponentially: a failure is
remembered, and the two orders of a symmetric sub-pattern count once.

A match is valid only if every value made inside, except the result, is used inside only and is not an
output of the graph. This is part of matching: if one solution breaks it, the next one is tried. (Keeping
one solution per element would not be enough, because it may cover other ops than the next one does.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from qc.ir.graph import Graph, Op, Value

from .attempt import FAILED, MATCHED, NO_OPS, Attempt, Bindings, Solution, bind, extended, held, merge
from .attributes import UNKNOWN, attribute_of, normalized
from .conditions import described, equal_attributes, refuse_any, refuse_constant
from .lookahead import Lookahead, Operands
from .mismatch import NOT_CONSTANT, WRONG_CONTENT, WRONG_OP, WRONG_PORTS, Failure
from .pattern import Alternatives, AnyValue, Attribute, Constant, OpPattern, Output, Pattern
from .program import Node, Program


class _Place(NamedTuple):
    """An element that is being matched at a value, with the attempt that collects the outcome."""

    node: Node
    value: Value | None
    attempt: Attempt


class Engine:
    """Matches patterns on one graph, as long as the graph does not change.

    Args:
        graph: the graph.
        explain: whether to record why attempts fail. Without it, whole branches are skipped by looking
            at what computes a value and its operands.
    """

    def __init__(self, graph: Graph, explain: bool = False) -> None:
        self.graph = graph
        self.explain = explain
        self._memo: dict[tuple[object, ...], Attempt] = {}
        self._refusals: dict[tuple[Pattern, Value], str | None] = {}
        self.look = Lookahead(graph, explain)
        self._outputs = frozenset(id(value) for value in graph.outputs)

    def solutions(self, program: Program, result: Value) -> Iterator[Solution]:
        """All ways to match the pattern with this result, the use of inner values checked."""
        attempt = self.attempt(program, result)
        root = self.look.producer(result)
        for solution in attempt:
            leak = self._leak(solution.ops, root)
            if leak is None:
                yield solution
            elif self.explain:
                attempt.fail(_leak_failure(program, solution, *leak))

    def attempt(self, program: Program, result: Value) -> Attempt:
        """The attempt to match the whole pattern at a value, before the use of inner values is checked."""
        return self._solve(program.root, result, (None,) * program.width)

    def forget(self) -> None:
        """Drops what was remembered, which is of little use at another result and would crowd the memory."""
        for attempt in self._memo.values():
            attempt.source = None
        self._memo.clear()

    # -- elements -----------------------------------------------------------------------------------

    def _solve(self, node: Node, value: Value | None, bound: Bindings) -> Attempt:
        """The ways to match an element at ``value`` (None: an input that is left out)."""
        slot = node.slot
        if slot is not None and bound[slot] is not None:
            if bound[slot] is held(value):
                return MATCHED
            return self._refused(WRONG_CONTENT, node, value, f"the same value as before, {bound[slot]}")
        signature = self.look.signature(value)
        if not self.look.plausible(node, signature):
            rank = NOT_CONSTANT if node.is_leaf else WRONG_OP
            return self._refused(rank, node, value, _wanted(node))
        if node.is_leaf:
            return self._leaf(node, value, bound)
        if node.is_transparent:
            options = self.look.options(node, signature)
            if len(options) == 1:
                return self._solve(options[0][1], value, bound)
        key = (node, value, *[bound[index] for index in node.interface])
        attempt = self._memo.get(key)
        if attempt is None:
            attempt = self._memo[key] = Attempt()
            start: list[object] = [None] * len(bound)
            for index in node.interface:
                start[index] = bound[index]
            attempt.source = self._expand(_Place(node, value, attempt), tuple(start))
        return attempt

    def _leaf(self, node: Node, value: Value | None, bound: Bindings) -> Attempt:
        expected = self._refusal(node.element, value)
        if expected is not None:
            return self._refused(
                WRONG_CONTENT if expected != "a constant" else NOT_CONSTANT, node, value, expected
            )
        if node.slot is None:
            return MATCHED
        return Attempt([Solution(bind((None,) * len(bound), node.slot, held(value)), NO_OPS)])

    def _refusal(self, element: Pattern, value: Value | None) -> str | None:
        """What was expected, if a leaf of the pattern does not accept the value."""
        if value is None:
            return None
        if isinstance(element, AnyValue):
            return refuse_any(element, value)
        assert isinstance(element, Constant)
        key = (element, value)
        if key not in self._refusals:
            self._refusals[key] = refuse_constant(element, value)
        return self._refusals[key]

    def _refused(
        self, rank: int, node: Node, value: Value | None, expected: str, found: str | None = None
    ) -> Attempt:
        """A failed attempt; says why only when asked to explain."""
        if not self.explain:
            return FAILED
        return Attempt(failure=Failure(0, rank, node.element, value, expected, found or described(value)))

    def _expand(self, place: _Place, bound: Bindings) -> Iterator[Solution]:
        """The solutions of an element with parts, one after the other."""
        element, slot = place.node.element, place.node.slot
        if isinstance(element, Alternatives):
            found = self._alternatives(place, element, bound)
        elif isinstance(element, Output):
            found = self._output(place, element, bound)
        else:
            assert isinstance(element, OpPattern) and place.value is not None
            found = self._op(place, element, place.value, bound)
        for solution in found:
            if slot is None:
                yield solution
            else:
                yield Solution(bind(solution.bindings, slot, held(place.value)), solution.ops)

    def _alternatives(self, place: _Place, element: Alternatives, bound: Bindings) -> Iterator[Solution]:
        node = place.node
        for index, option in self.look.options(node, self.look.signature(place.value)):
            inner = self._solve(option, place.value, bound)
            for solution in inner:
                merged = merge(bound, solution.bindings)
                if node.choice is not None:
                    merged = bind(merged, node.choice, element.labels[index])
                yield Solution(merged, solution.ops)
            if self.explain:
                place.attempt.inherit(inner, 0)

    def _output(self, place: _Place, element: Output, bound: Bindings) -> Iterator[Solution]:
        producer = self.look.producer(place.value) if place.value is not None else None
        outputs = self.graph.op_outputs(producer) if producer is not None else ()
        if element.index >= len(outputs) or outputs[element.index] is not place.value:
            expected = f"output {element.index} of an op"
            place.attempt.inherit(self._refused(WRONG_PORTS, place.node, place.value, expected), 0)
            return
        first = next(value for value in outputs if value is not None)
        inner = self._solve(place.node.children[0], first, bound)
        for solution in inner:
            yield Solution(merge(bound, solution.bindings), solution.ops)
        if self.explain:
            place.attempt.inherit(inner, 0)

    # -- ops ----------------------------------------------------------------------------------------

    def _op(self, place: _Place, element: OpPattern, value: Value, bound: Bindings) -> Iterator[Solution]:
        op = self.look.producer(value)
        assert op is not None
        orders = self._orders(place.node, value, op)
        if not orders:
            expected = f"the first output of {op.op_type} with {len(element.inputs)} inputs"
            place.attempt.inherit(self._refused(WRONG_PORTS, place.node, value, expected), 0)
            return
        after = self._attributes(place, op, bound)
        if after is None:
            return
        start = Solution(after, frozenset((op,)))
        for order in orders:
            yield from self._join(place, order, 0, start)

    def _orders(self, node: Node, value: Value, op: Op) -> list[Operands]:
        """The operand orders to try, each once; none if ``value`` or the number of inputs is wrong."""
        if op.num_outputs > 1 and value is not next(each for each in self.graph.op_outputs(op) if each):
            return []
        inputs = self.look.inputs(op)
        orders = self.look.orders(node, self.look.signature(value))
        found = [tuple(inputs[port] if port < len(inputs) else None for port in order) for order in orders]
        return list(dict.fromkeys(found))

    def _join(self, place: _Place, order: Operands, port: int, state: Solution) -> Iterator[Solution]:
        """Matches the inputs from ``port`` on, under what the inputs before it have bound."""
        children = place.node.children
        while port < len(order):
            inner = self._solve(children[port], order[port], state.bindings)
            port += 1
            if not inner.is_single:
                for solution in inner:
                    yield from self._join(place, order, port, extended(state, solution))
                if self.explain:
                    place.attempt.inherit(inner, len(state.ops))
                return
            if self.explain:
                place.attempt.inherit(inner, len(state.ops))
            state = extended(state, inner.found[0])
        yield state

    def _attributes(self, place: _Place, op: Op, bound: Bindings) -> Bindings | None:
        """The bindings after the attributes; None when one does not fit."""
        inputs = self.look.inputs(op)
        for name, test, slot in place.node.tests:
            found = attribute_of(op, name, inputs)
            if isinstance(test, Attribute):
                assert slot is not None
                fits = found is not UNKNOWN and bound[slot] in (None, (found,))
                fits = fits and (test.where is None or test.where(found))
                bound = bind(bound, slot, (found,))
                wanted = test.name
            else:
                fits = equal_attributes(normalized(op, name, test, inputs), found)
                wanted = repr(test)
            if not fits:
                seen = f"{name}={found!r} in {op.label}"
                refused = self._refused(WRONG_CONTENT, place.node, place.value, f"{name}={wanted}", seen)
                place.attempt.inherit(refused, 0)
                return None
        return bound

    def _leak(self, ops: frozenset[Op], root: Op | None) -> tuple[Value, Op | None] | None:
        """A value made inside that is seen outside, with the op that reads it (None: a graph output)."""
        graph = self.graph.nx
        inside = {op.id for op in ops}
        for op in sorted(ops, key=lambda op: op.id):
            for value_id in graph.succ[op.id] if op is not root else ():
                value: Value = graph.nodes[value_id]["payload"]
                if id(value) in self._outputs:
                    return value, None
                outside = next((reader for reader in graph.succ[value_id] if reader not in inside), None)
                if outside is not None:
                    return value, graph.nodes[outside]["payload"]
        return None


def _wanted(node: Node) -> str:
    """What an element expects, in words."""
    if isinstance(node.element, OpPattern):
        return " or ".join(node.element.op_types)
    if isinstance(node.element, (Constant, AnyValue)):
        return "a constant" if isinstance(node.element, Constant) else "an input"
    return " or ".join(sorted(kind[1] for kind in node.kinds if kind is not None and kind[1])) or "no input"


def _leak_failure(program: Program, solution: Solution, value: Value, reader: Op | None) -> Failure:
    seen = f"is read by {reader.label}" if reader is not None else "is an output of the graph"
    found = f"'{value.name}', which {seen}"
    return Failure(
        len(solution.ops), 3, program.root.element, value, "a value that only the match uses", found
    )
