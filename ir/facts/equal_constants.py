"""Constants that hold the same bits, and how to store them once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import takewhile

from ..graph import Graph, Value
from ..rewriter import Rewriter
from ..tensor_ref import TensorRef
from .constants import is_default
from .scopes import Captures

_HEAD = 256  # elements that are compared first


def equal_constants(constants: Iterable[Value]) -> list[list[Value]]:
    """Groups of constants of one element type, shape and content, bit for bit; each in the order given.

    What is alone in its type, shape and first elements is not read any further, and no more than a piece of
    external data is in memory at once.
    """
    groups = [list(constants)]
    for key in (_kind, _head, TensorRef.digest):
        groups = [part for group in groups for part in _divided(group, key)]
    return groups


def _kind(const: TensorRef) -> Hashable:
    return const.data_type, const.shape


def _head(const: TensorRef) -> Hashable:
    return const.digest(_HEAD)


def _divided(constants: Sequence[Value], key: Callable[[TensorRef], Hashable]) -> list[list[Value]]:
    """The groups of one key that have several members."""
    found: dict[Hashable, list[Value]] = {}
    for value in constants:
        assert value.const is not None
        found.setdefault(key(value.const), []).append(value)
    return [group for group in found.values() if len(group) > 1]


def share_constants(rewriter: Rewriter, constants: Sequence[Value]) -> None:
    """Makes one constant of equal ones that something reads, an action for each that goes.

    It is the first in the innermost graph around all of them; if there is none, the first moves there. Bodies
    capture it. What is an output of its graph stays, since a graph cannot give back what it captures, and so
    do defaults, which a caller may override.
    """
    fixed = (value for value in constants if value.is_read and not is_default(value))
    for group in equal_constants(fixed):
        outer = _innermost_around([value.graph for value in group])
        movable = [value for value in group if not value.is_output]
        # An output is the best choice, as it stays in any case.
        there = sorted((value for value in group if value.graph is outer), key=movable.__contains__)
        kept = there[0] if there else None
        if kept is None and len(movable) < 2:
            continue
        for value in (value for value in movable if value is not kept):
            with rewriter.action("share constant", value):
                if kept is None:
                    assert value.const is not None
                    kept = rewriter.add_constant(outer, value.const, value.name)
                _replace(rewriter, value, kept)


def _innermost_around(graphs: Sequence[Graph]) -> Graph:
    """The innermost graph that is, or is around, each of the graphs."""
    paths = [_path(graph) for graph in dict.fromkeys(graphs)]
    common = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return [level[0] for level in common][-1]


def _path(graph: Graph) -> list[Graph]:
    """The graph and those around it, the outermost first."""
    path = [graph]
    while path[-1].parent is not None:
        path.append(path[-1].parent.graph)
    return path[::-1]


def _replace(rewriter: Rewriter, value: Value, kept: Value) -> None:
    """Lets all that read a constant read another one, of its graph or of one around it."""
    captured = value.graph is not kept.graph or bool(value.capturing)
    rewriter.replace_uses(value, Captures(rewriter).into(value.graph, kept), outputs=False)
    rewriter.drop_unread(value)
    if captured:
        _capture_once(rewriter, kept)


def _capture_once(rewriter: Rewriter, value: Value) -> None:
    """Lets each body read a value through one capture."""
    for owner in value.capturing:
        for body in owner.subgraphs.values():
            captures = [inner for inner in body.values() if inner.captured is value]
            for other in captures[1:]:
                rewriter.replace_uses(other, captures[0], outputs=False)
                rewriter.drop_unread(other)
            if captures:
                _capture_once(rewriter, captures[0])
