"""Patterns with several results: how the further ones are found once the first has matched.

They are never looked for among all ops of a graph. A further result shares a part with those before it; from
the value that this part has matched, one follows the uses upwards, along the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from qc.ir.errors import UsageError
from qc.ir.graph import Graph, Op, Value

from .pattern import Alternatives, OpPattern, Output, Pattern, Results
from .term import children_first


def check_connected(pattern: Results) -> None:
    """Raises UsageError if a further result shares nothing with those before it, however it matches."""
    bound = _certain(pattern.values[0])
    for index, result in enumerate(pattern.values[1:], 1):
        reached: dict[Pattern, bool] = {}
        for element in children_first([result]):
            below = [reached[child] for child in element.children]
            is_reached = all(below) if isinstance(element, Alternatives) else any(below)
            reached[element] = element in bound or (bool(below) and is_reached)
        if not reached[result]:
            raise UsageError(
                f"result {index} of a pattern shares nothing with the results before it that every match "
                f"has: {result!r}"
            )
        bound |= _certain(result)


def _certain(result: Pattern) -> set[Pattern]:
    """The elements that every match of a result ties to a value."""
    found: set[Pattern] = set()
    pending = [result]
    while pending:
        element = pending.pop()
        if element not in found and not element.is_predicate:
            found.add(element)
            pending.extend(() if isinstance(element, Alternatives) else element.children)
    return found


def candidates(graph: Graph, result: Pattern, bound: Mapping[Pattern, Value]) -> list[Value]:
    """The values that a further result can be, in the order in which the uses lead to them.

    Args:
        graph: the graph.
        result: the pattern of the result.
        bound: what the elements have matched that are bound already.
    """
    reached: dict[Pattern, list[Value] | None] = {element: [value] for element, value in bound.items()}
    for element in children_first([result], reached):
        if isinstance(element, Alternatives):
            reached[element] = _joined([reached[option] for option in element.options])
        else:
            ways = [values for child in element.children if (values := reached[child]) is not None]
            nearest = min(ways, key=lambda values: _use_count(graph, values), default=None)
            reached[element] = None if nearest is None else list(_above(element, nearest))
    return list(dict.fromkeys(reached[result] or ()))


def _joined(options: list[list[Value] | None]) -> list[Value] | None:
    """What any option leads to; None if one cannot be followed."""
    known = [values for values in options if values is not None]
    return [value for values in known for value in values] if len(known) == len(options) else None


def _above(element: Pattern, values: list[Value]) -> Iterator[Value]:
    """The values that ``element`` can be if one of its parts is one of ``values``."""
    for value in values:
        if isinstance(element, Output):
            producer = value.producer
            outputs = producer.outputs if producer is not None else ()
            made = outputs[element.index] if element.index < len(outputs) else None
            if made is not None:
                yield made
        elif isinstance(element, OpPattern):
            for user in dict.fromkeys(use.op for use in value.uses):
                if user.domain == element.domain and user.op_type in element.op_types:
                    yield from [output for output in user.outputs if output is not None][:1]


def _use_count(graph: Graph, values: list[Value]) -> int:
    return sum(len(graph.nx.sinks(value.id)) for value in values)


def has_detour(shown: Iterable[Value | None], ops: frozenset[Op], position: Mapping[Op, int]) -> bool:
    """Whether a way leads out of the ops and back in, so that they cannot run as one.

    Args:
        graph: the graph.
        shown: the values made inside that are seen outside.
        ops: the matched ops.
        position: the place of every op in the topological order.
    """
    last = max(position[op] for op in ops)
    pending = [use.op for value in shown if value is not None for use in value.uses if use.op not in ops]
    seen: set[Op] = set()
    while pending:
        op = pending.pop()
        if op in ops:
            return True
        if op not in seen and position[op] < last:
            seen.add(op)
            made = (value for value in op.outputs if value is not None)
            pending.extend(use.op for value in made for use in value.uses)
    return False
