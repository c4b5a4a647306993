"""The matcher against a brute-force one, on random graphs and random patterns: the same set of matches."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qc.ir import lift
from qc.ir.errors import UsageError
from qc.patterns import (
    Matcher,
    attribute,
    choice,
    constant,
    find_all,
    match_at,
    matches_at,
    op,
    optional,
    results,
    value,
)
from qc.patterns.compiled import forms_of
from qc.patterns.pattern import (
    Absent,
    Alternatives,
    AnyValue,
    Attribute,
    Constant,
    OpPattern,
    Output,
    Results,
)

BINARY = ("Add", "Mul", "Sub")
UNARY = ("Relu", "Neg")
COMMUTATIVE = ("Add", "Mul", "Sum")


@st.composite
def graphs(draw):
    """Up to eight ops on two inputs and two constants, with some values exposed."""
    known = ["x0", "x1", "one", "two"]
    nodes, made = [], []
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from((*BINARY, *UNARY, "Clip", "Dropout", "LeakyRelu", "Sum")))
        recent = st.sampled_from(known[-draw(st.sampled_from((1, 1, 2, 3, 99))) :])
        outputs = [f"v{index}"]
        if kind in BINARY:
            inputs, attributes = [draw(recent), draw(recent)], {}
        elif kind == "Clip":
            inputs, attributes = [draw(recent), draw(st.sampled_from(("", "one"))), "two"], {}
        elif kind == "Dropout":
            first = draw(st.sampled_from((f"v{index}", f"v{index}", "")))
            inputs, attributes, outputs = [draw(recent)], {}, [first, f"m{index}"]
        elif kind == "Sum":
            inputs, attributes = [draw(recent) for _ in range(draw(st.integers(1, 3)))], {}
        elif kind == "LeakyRelu":
            inputs, attributes = [draw(recent)], {"alpha": draw(st.sampled_from((0.25, 0.5)))}
        else:
            inputs, attributes = [draw(recent)], {}
        nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        known += filter(None, outputs)
        made += filter(None, outputs)
    exposed = sorted({made[-1], *draw(st.lists(st.sampled_from(made), max_size=1))})
    constants = [numpy_helper.from_array(np.float32(n), name) for n, name in ((1, "one"), (2, "two"))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x0", "x1")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in exposed]
    return lift(helper.make_model(helper.make_graph(nodes, "random", inputs, outputs, constants))).graph


def has_odd_id(found):
    """A condition that nothing but the value itself can tell."""
    return found.id % 2 == 1


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
        producer = found.producer if found is not None else None
        if producer is not None and depth > 0:
            made = self.op(producer, depth)
            index = producer.outputs.index(found)
            return made[index] if index else made
        if found is None:
            return optional(constant())
        if found.const is not None and self.chance(60):
            number = float(found.const.numpy())
            return constant(number) if self.chance(50) else constant(self.name() or None)
        return value(self.name(), where=has_odd_id if self.chance(10) else None)

    def name(self):
        return self.draw(st.sampled_from(("", "a", "b")))

    def op(self, producer, depth):
        inputs = [self.pattern(each, depth - 1) for each in producer.inputs]
        if producer.op_type in COMMUTATIVE and self.chance(50):
            inputs.reverse()
        if self.chance(15):
            inputs = [*inputs[: self.draw(st.integers(0, len(inputs)))], ...]
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
    elif drawn.chance(30):
        pattern = with_further_results(drawn, pattern)
    return graph, pattern


def with_further_results(drawn, main):
    """A pattern with more results, if there are any that the rules of the language allow."""
    others = []
    for _ in range(drawn.draw(st.integers(1, 2))):
        bound = [found for found in drawn.made if found is not None]
        readers = [use.op for found in bound for use in found.uses]
        if readers and drawn.chance(70):
            reader = drawn.draw(st.sampled_from(readers))
            inputs = [
                drawn.draw(st.sampled_from(drawn.made[found]))
                if found in drawn.made
                else drawn.fresh(found, 1)
                for found in reader.inputs
            ]
            others.append(op[reader.op_type](*inputs))
        elif bound:
            others.append(drawn.draw(st.sampled_from(drawn.made[drawn.draw(st.sampled_from(bound))])))
    pattern = results(main, *others)
    try:
        forms_of(pattern)
    except UsageError:
        return main
    return pattern


def brute_force(graph, pattern, result):
    """All assignments of all elements, tried one by one; then those that leak or name two values are out."""
    main, *others = pattern.values if isinstance(pattern, Results) else (pattern,)
    root = result.producer
    found = set()
    for further in product(graph.values(), repeat=len(others)):
        values = (result, *further)
        states = [({}, frozenset())]
        for element, each in zip((main, *others), values, strict=True):
            states = [
                (after, ops | more)
                for bound, ops in states
                for after, more in assignments(graph, element, each, bound)
            ]
        for bound, ops in states:
            names = frozenset(captured(bound))
            hidden = [made for inside in ops - {root} for made in inside.outputs if made not in further]
            sound = len(set(values)) == len(values) and not leaks(graph, hidden, ops)
            if sound and len(dict(names)) == len(names) and not (others and returns(graph, ops)):
                found.add((ops, values, names))
    return found


def leaks(graph, hidden, ops):
    return any(
        each.is_output or any(use.op not in ops for use in each.uses) for each in hidden if each is not None
    )


def returns(graph, ops):
    """Whether a way leads out of the ops and back in."""
    behind = set()
    for each in graph.ops():
        sources = [found.producer for found in each.inputs if found is not None]
        if each in ops and any(source in behind for source in sources):
            return True
        if each not in ops and any(source in behind or source in ops for source in sources):
            behind.add(each)
    return False


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
    elif isinstance(element, AnyValue):
        if element.where is None or element.where(found):
            yield bound, frozenset()
    elif isinstance(element, Constant):
        if found.const is not None:
            yield bound, frozenset()
    elif isinstance(element, (OpPattern, Output)):
        source, index = (element, 0) if isinstance(element, OpPattern) else (element.source, element.index)
        producer = found.producer
        if producer is None or producer.op_type not in source.op_types:
            return
        outputs = producer.outputs
        if source is not element and (index >= len(outputs) or outputs[index] is not found):
            return
        first = next(each for each in outputs if each is not None)
        if source is not element:
            yield from assignments(graph, source, first, bound)
        elif found is first:
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
    inputs, wanted = producer.inputs, len(element.inputs)
    fits = len(inputs) >= wanted if element.open_ended else len(inputs) == wanted
    if not fits:
        return
    for order in permutations(inputs, wanted) if producer.op_type in COMMUTATIVE else [inputs[:wanted]]:
        states = [(bound, frozenset((producer,)))]
        for part, operand in zip(element.inputs, order, strict=True):
            states = [
                (after, ops | more)
                for state, ops in states
                for after, more in assignments(graph, part, operand, state)
            ]
        yield from states


def meanings(matches):
    return {
        (
            frozenset(match.ops),
            match.results,
            frozenset((*match.captures.items(), *match.attributes.items(), *match.choices.items())),
        )
        for match in matches
    }


@settings(max_examples=500, deadline=None)
@given(graphs_and_patterns())
def test_same_matches_as_brute_force(drawn):
    graph, pattern = drawn
    matcher = Matcher(graph, [pattern])
    for each in graph.ops():
        made = [found for found in each.outputs if found is not None]
        expected = set().union(*(brute_force(graph, pattern, found) for found in made))
        assert meanings(matches_at(pattern, each)) == expected
        assert meanings(match for found in made for match in matcher.matches(pattern, found)) == expected
        assert bool(match_at(pattern, each)) == bool(expected)


def simply_found(graph, patterns):
    """What find_all does, with all matches at hand: again and again the largest one whose ops are free."""
    places = [(each, rank) for each in graph.ops() for rank in range(len(patterns))]
    left = [
        (place, rank, list(matches_at(patterns[rank], each))) for place, (each, rank) in enumerate(places)
    ]
    claimed, found = set(), []
    while left := [(place, rank, matches) for place, rank, matches in left if matches]:
        _, _, matches = min(left, key=lambda item: (-len(item[2][0].ops), item[1], item[0]))
        match = matches.pop(0)
        if claimed.isdisjoint(match.ops):
            matches.clear()
            claimed.update(match.ops)
            found.append(match)
    return found


@settings(max_examples=200, deadline=None)
@given(graphs_and_patterns(), st.data())
def test_find_all_takes_the_largest_free_match_again_and_again(drawn, data):
    graph, pattern = drawn
    other = Drawn(data.draw, graph)
    patterns = [pattern, other.op(data.draw(st.sampled_from(graph.ops())), 2)]
    assert meanings(find_all(graph, patterns)) == meanings(simply_found(graph, patterns))
