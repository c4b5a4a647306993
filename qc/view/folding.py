"""Folds ops into modules, so that a picture has no more boxes than can be read.

Modules are made of the scopes in names, such as ``layers.0`` in ``/model/layers.0/mlp/MatMul``; where names
tell nothing, of blocks that repeat; and at last of stretches of the order.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from qc.diff.wiring import GraphWiring
from qc.ir.graph import Op

from .modules import Module, ops_of, scopes_of

MOST_BOXES = 60  # in one picture; more cannot be read at once
_STRETCH = 20
_LEAST = 3  # ops of a module

Item = Op | Module


def folded(scope: GraphWiring, ops: Sequence[Op], depth: int = 0) -> tuple[Item, ...]:
    """The ops of a graph with modules in place of those that would be too many, in topological order.

    Args:
        ops: in topological order.
        depth: how many scopes of the ops are known to be those of a module around.
    """
    if len(ops) <= MOST_BOXES:
        return tuple(ops)
    items: list[Item] = []
    for label, piece in _pieces(scope, ops, depth):
        if label and len(piece) >= _LEAST:
            items.append(_module(label, folded(scope, piece, depth + 1), depth))
        else:
            items += piece
    return _gathered(scope, _opened(items, len(ops)), depth)


def _module(label: str, items: Sequence[Item], depth: int) -> Module:
    ops = [*ops_of(items)]
    return Module(f"{ops[0].id}-{len(ops)}-{depth}", label, tuple(items))


# -- scopes -------------------------------------------------------------------------------------------------


def _pieces(scope: GraphWiring, ops: Sequence[Op], depth: int) -> list[tuple[str, list[Op]]]:
    """The ops by their scopes, which are in pieces where others lie between. An op of none stands alone."""
    found: list[tuple[str, list[Op]]] = []
    followers: list[set[int]] = []
    piece_of: dict[Op, int] = {}
    current: dict[str, int] = {}
    for op in ops:
        label = next(iter(scopes_of(op)[depth:]), "")
        before = {piece_of[producer] for producer in _producers(scope, op) if producer in piece_of}
        piece = current.get(label)
        if piece is None or not label or _reaches(followers, piece, before - {piece}):
            piece = current[label] = len(found)
            found.append((label, []))
            followers.append(set())
        found[piece][1].append(op)
        piece_of[op] = piece
        for other in before - {piece}:
            followers[other].add(piece)
    return [found[piece] for piece in _sorted(followers)]


def _producers(scope: GraphWiring, op: Op) -> Iterator[Op]:
    """The ops that make what an op reads, be it in its bodies."""
    read = [one.value for one in scope.reads[op] if one is not None]
    values = (*read, *scope.captured.get(op, ()))
    return (scope.producer[value] for value in values if value in scope.producer)


def _reaches(followers: Sequence[set[int]], start: int, goals: set[int]) -> bool:
    """Whether anything leads from a piece to one of others."""
    seen, pending = {start}, [start] if goals else []
    while pending:
        following = followers[pending.pop()]
        if following & goals:
            return True
        pending += following - seen
        seen |= following
    return False


def _sorted(followers: Sequence[set[int]]) -> Iterator[int]:
    """The pieces in topological order, and else in that of their first ops."""
    waiting = [0] * len(followers)
    for following in followers:
        for piece in following:
            waiting[piece] += 1
    ready = [piece for piece, count in enumerate(waiting) if not count]
    while ready:
        piece = heapq.heappop(ready)
        yield piece
        for other in followers[piece]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, other)


def _opened(items: Sequence[Item], ops: int) -> list[Item]:
    """The items, with what is in it in place of a module that holds more than half of the ops."""
    found: list[Item] = []
    for item in items:
        inner = item.items if isinstance(item, Module) else ()
        is_most = 2 * sum(1 for _ in ops_of(inner)) > ops
        found += inner if is_most and len(items) + len(inner) - 1 <= MOST_BOXES else [item]
    return found


# -- items that are too many --------------------------------------------------------------------------------


def _gathered(scope: GraphWiring, items: Sequence[Item], depth: int) -> tuple[Item, ...]:
    """The items, with blocks that repeat as modules, then with stretches, until they are few enough."""
    if len(items) <= MOST_BOXES:
        return tuple(items)
    with_blocks = _blocks(scope, items, depth)
    return with_blocks if len(with_blocks) <= MOST_BOXES else tuple(_stretches(scope, with_blocks, depth))


def _blocks(scope: GraphWiring, items: Sequence[Item], depth: int) -> tuple[Item, ...]:
    """The items with each round of the longest run that repeats as a module."""
    start, period, rounds = _longest_run([_kind(item) for item in items])
    if period < _LEAST:
        return tuple(items)
    blocks = [
        _module(
            f"block {number + 1}",
            _gathered(scope, items[start + number * period :][:period], depth),
            depth,
        )
        for number in range(rounds)
    ]
    return (*items[:start], *blocks, *items[start + rounds * period :])


def _kind(item: Item) -> str:
    return re.sub(r"\d+", "", item.label) if isinstance(item, Module) else item.op_type


def _longest_run(kinds: Sequence[str]) -> tuple[int, int, int]:
    """Where the longest run begins in which a period repeats, the shortest such period, and how often."""
    numbers = np.unique(kinds, return_inverse=True)[1]
    best = (0, 0, 0)
    for period in range(1, len(kinds) // 2 + 1):
        breaks = np.flatnonzero(numbers[period:] != numbers[:-period])
        ends = np.concatenate([[-1], breaks, [len(kinds) - period]])
        lengths = np.diff(ends) - 1 + period
        longest = int(lengths.argmax())
        if lengths[longest] >= 2 * period and lengths[longest] > best[1] * best[2] + best[1]:
            best = int(ends[longest]) + 1, period, int(lengths[longest]) // period
    return best


def _stretches(scope: GraphWiring, items: Sequence[Item], depth: int) -> Iterator[Module]:
    """Stretches of about equal length, cut where few tensors pass."""
    count = math.ceil(len(items) / max(_STRETCH, math.ceil(len(items) / MOST_BOXES)))
    passing = _passing(scope, items)
    slack = len(items) // (4 * count)
    ideal = (round(number * len(items) / count) for number in range(1, count))
    cuts = [
        min((passing[at], abs(at - cut), at) for at in range(cut - slack, cut + slack + 1))[-1]
        for cut in ideal
    ]
    ops = [0, *accumulate(sum(1 for _ in ops_of([item])) for item in items)]
    for start, end in pairwise([0, *cuts, len(items)]):
        ends = [_name(item, depth) for item in (items[start], items[end - 1])]
        place = f"ops {ops[start] + 1:,} to {ops[end]:,} of {ops[-1]:,}"
        label = " to ".join(ends) if all(ends) else place
        yield _module(label, _gathered(scope, items[start:end], depth), depth)


def _passing(scope: GraphWiring, items: Sequence[Item]) -> list[int]:
    """How many tensors are made before each place and read behind it."""
    place = {op: number for number, item in enumerate(items) for op in ops_of([item])}
    changes = [0] * (len(items) + 1)
    for op, made in place.items():
        results = (value for value in scope.results[op] if value is not None)
        readers = [place.get(user.op, made) for value in results for user in scope.users.get(value, ())]
        changes[made + 1] += 1
        changes[max(readers, default=made) + 1] -= 1
    return np.cumsum(changes).tolist()


def _name(item: Item, depth: int) -> str:
    """What an item is called among others at a depth; nothing for an op of no scope there."""
    return item.label if isinstance(item, Module) else next(iter(scopes_of(item)[depth:]), "")
