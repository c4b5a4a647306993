"""The matcher against a brute-force one, on random graphs and random patterns: the same set of matches."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qc.ir.lift import lift
from qc.patterns import attribute, choice, constant, find_all, matches_at, op, optional, value
from qc.patterns.pattern import Absent, Alternatives, AnyValue, Attribute, Constant, OpPattern, Output

BINARY = ("Add", "Mul", "Sub")
UNARY = ("Relu", "Neg")
COMMUTATIVE = ("Add", "Mul")


@st.composite
def graphs(draw):
    """Up to eight ops on two inputs and two constants, with some values exposed."""
    known = ["x0", "x1", "one", "two"]
    nodes, made = [], []
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from((*BINARY, *UNARY, "Clip", "Dropout", "LeakyRelu")))
        recent = st.sampled_from(known[-draw(st.sampled_from((1, 1, 2, 3, 99))) :])
        outputs = [f"v{index}"]
        if kind in BINARY:
            inputs, attributes = [draw(recent), draw(recent)], {}
        elif kind == "Clip":
            inputs, attributes = [draw(recent), draw(st.sampled_from(("", "one"))), "two"], {}
        elif kind == "Dropout":
            inputs, attributes, outputs = [draw(recent)], {}, [f"v{index}", f"m{index}"]
        elif kind == "LeakyRelu":
            inputs, attributes = [draw(recent)], {"alpha": draw(st.sampled_from((0.25, 0.5)))}
        else:
            inputs, attributes = [draw(recent)], {}
        nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        known += outputs
        made += outputs
    exposed = sorted({made[-1], *draw(st.lists(st.sampled_from(made), max_size=1))})
    constants = [numpy_helper.from_array(np.float32(n), name) for n, name in ((1, "one"), (2, "two"))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x0", "x1")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in exposed]
    return lift(helper.make_model(helper.make_graph(nodes, "random", inputs, outputs, constants))).graph


class Drawn:
    """Draws a pattern that resembles what computes a value, with some parts reused and some wrong."""

    def __init__(self, draw, graph):
        self.draw, self.graph = draw, graph
        self.made = {}
        self.alpha = attribute("alpha")

    def chance(self, percent):
        return self.draw(st.integers(1, 100)) <= percent

    def pattern(self, found, depth):
        """A pattern for a value; None is an input that is left out."""
        if self.chance(8):
            found = self.draw(st.sampled_from(self.graph.values()))
        if found in self.made and self.chance(60):
            return self.draw(st.sampled_from(self.made[found]))
        made = self.fresh(found, depth)
        if self.chance(30):
            other = self.draw(st.sampled_from(self.graph.values())) if self.chance(50) else found
            pair = [made, self.fresh(other, depth - 1)]
            left, right = pair if self.chance(50) else pair[::-1]
            named = choice(f"c{len(self.made)}", {"left": left, "right": right})
            made = named if self.chance(30) else left | right
        self.made.setdefault(found, []).append(made)
        return made

    def fresh(self, found, depth):
        producer = self.graph.producer(found) if found is not None else None
        if producer is not None and depth > 0:
            made = self.op(producer, depth)
            index = self.graph.op_outputs(producer).index(found)
            return made[index] if index else made
        if found is None:
            return optional(constant())
        if found.const is not None and self.chance(60):
            number = float(found.const.numpy())
            return constant(number) if self.chance(50) else constant(self.name() or None)
        return value(self.name())

    def name(self):
        return self.draw(st.sampled_from(("", "a", "b")))

    def op(self, producer, depth):
        inputs = [self.pattern(each, depth - 1) for each in self.graph.op_inputs(producer)]
        if producer.op_type in COMMUTATIVE and self.chance(50):
            inputs.reverse()
        if producer.op_type == "LeakyRelu":
            return op.LeakyRelu(*inputs, alpha=self.alpha if self.chance(60) else 0.25)
        return op[producer.op_type](*inputs)


@st.composite
def graphs_and_patterns(draw):
    graph = draw(graphs())
    drawn = Drawn(draw, graph)
    root = draw(st.sampled_from(graph.ops()[-3:]))
    pattern = drawn.op(root, draw(st.integers(1, 4)))
    if drawn.chance(25):
        pattern = pattern | drawn.op(root, 2)
    return graph, pattern


def brute_force(graph, pattern, result):
    """All assignments of all elements, tried one by one; then those that leak or name two values are out."""
    root = graph.producer(result)
    found = set()
    for bound, ops in assignments(graph, pattern, result, {}):
        names = frozenset(captured(bound))
        if not leaks(graph, ops - {root}, ops) and len(dict(names)) == len(names):
            found.add((frozenset(ops), names))
    return found


def leaks(graph, inner, ops):
    made = [each for inside in inner for each in graph.op_outputs(inside) if each is not None]
    return any(graph.is_output(each) or any(use.op not in ops for use in graph.uses(each)) for each in made)


def captured(bound):
    for element, held in bound.items():
        if isinstance(element, Attribute):
            yield element.name, held
        elif isinstance(element, tuple):
            yield element[0].name, held
        elif element.name and held is not None and not getattr(element, "labels", ()):
            yield element.name, held


def assignments(graph, element, found, bound):
    if isinstance(element, Constant) and element.number is not None:
        if found is not None and found.const is not None and float(found.const.numpy()) == element.number:
            yield bound, frozenset()
        return
    if element in bound:
        if bound[element] is found:
            yield bound, frozenset()
        return
    for after, ops in fresh_assignments(graph, element, found, bound):
        yield {**after, element: found}, ops


def fresh_assignments(graph, element, found, bound):
    if isinstance(element, Absent):
        if found is None:
            yield bound, frozenset()
    elif isinstance(element, Alternatives):
        for index, option in enumerate(element.options):
            for after, ops in assignments(graph, option, found, bound):
                yield ({**after, (element,): element.labels[index]} if element.labels else after), ops
    elif found is None:
        return
    elif isinstance(element, AnyValue) or (isinstance(element, Constant) and found.const is not None):
        yield bound, frozenset()
    elif isinstance(element, (OpPattern, Output)):
        source, index = (element, 0) if isinstance(element, OpPattern) else (element.source, element.index)
        producer = graph.producer(found)
        if producer is None or producer.op_type not in source.op_types:
            return
        outputs = graph.op_outputs(producer)
        if index >= len(outputs) or outputs[index] is not found:
            return
        if source is not element:
            yield from assignments(graph, source, outputs[0], bound)
        else:
            yield from op_assignments(graph, source, producer, bound)


def op_assignments(graph, element, producer, bound):
    bound = dict(bound)
    for name, test in element.attributes:
        held = producer.attribute(name)
        if isinstance(test, Attribute):
            if bound.setdefault(test, held) != held:
                return
        elif held != test:
            return
    inputs = graph.op_inputs(producer)
    commutes = producer.op_type in COMMUTATIVE
    for order in permutations(inputs) if commutes else [inputs]:
        states = [(bound, frozenset((producer,)))]
        for part, operand in zip(element.inputs, order, strict=True):
            states = [
                (after, ops | more)
                for state, ops in states
                for after, more in assignments(graph, part, operand, state)
            ]
        yield from states


@settings(max_examples=500, deadline=None)
@given(graphs_and_patterns())
def test_same_matches_as_brute_force(drawn):
    graph, pattern = drawn
    for each in graph.ops():
        expected = brute_force(graph, pattern, graph.op_outputs(each)[0])
        found = {
            (
                frozenset(match.ops),
                frozenset((*match.captures.items(), *match.attributes.items(), *match.choices.items())),
            )
            for match in matches_at(pattern, each)
        }
        assert found == expected


@settings(max_examples=100, deadline=None)
@given(graphs_and_patterns())
def test_find_all_claims_each_op_once_and_leaves_no_free_match(drawn):
    graph, pattern = drawn
    matches = find_all(graph, [pattern])
    claimed = [each for match in matches for each in match.ops]
    assert len(claimed) == len(set(claimed))
    for each in graph.ops():
        for match in matches_at(pattern, each):
            assert not set(claimed).isdisjoint(match.ops)
