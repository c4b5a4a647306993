"""Analyses of what flows through a graph and its bodies: data or mere shapes, finite numbers or infinity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from itertools import chain
from typing import TypeGuard

from onnx import TensorProto, numpy_helper

from ..analysis import CONSTANTS, STRUCTURE, TYPES, analysis
from ..graph import Graph, Op, Use, Value
from .op_traits import is_grid_preserving, reads_shape_only, traits
from .scopes import Scopes, scopes_of

# Numbers from here on stand for infinity, as in masks of attention: next to them float32 has no fractions.
_AS_INFINITE = 2.0**24
_SOFTMAX_REGIONS = ("softmax", "masked_softmax")


def is_plain_float(value: Value) -> bool:
    """Whether the value is a float32 tensor; 16-bit floats are left as they are."""
    return value.original.type.elem_type == TensorProto.FLOAT


@analysis(STRUCTURE, CONSTANTS)
def data_values(graph: Graph) -> frozenset[Value]:
    """Values that depend on the numbers of a graph input, be it of a body, and not on shapes alone."""
    scopes = scopes_of(graph)
    data = {value for inner in scopes.graphs for value in inner.inputs if value.const is None}
    for op in scopes.ops:
        read = [*op.inputs, *(value for body in op.subgraphs.values() for value in body.outputs)]
        depends = any(value is not None and value.original in data for value in read)
        if depends and not reads_shape_only(op):
            data.update(value for value in op.outputs if value is not None)
    return frozenset(data)


@analysis(STRUCTURE)
def masked_scores(graph: Graph) -> frozenset[Value]:
    """Values that a mask may have been added to or put into, and that nothing but Softmax ever sees.

    Softmax gives exactly 0 to all that lies far below the largest of a row, however far that is. In between
    there may be ops that only move numbers, choose between them or limit them.
    """
    scopes = scopes_of(graph)
    masked: set[Value] = set()
    for op in scopes.ops:
        passed = [value.original for _, value in _passed_on(op)]
        if traits(op).masks or any(value in masked for value in passed):
            masked.update(filter(_is_float, op.outputs[:1]))
    unseen: set[Value] = set()
    for op in reversed(scopes.ops):
        for value in op.outputs:
            if value in masked and _is_seen_by_softmax_only(scopes, value, unseen):
                unseen.add(value)
    return frozenset(unseen)


@analysis(STRUCTURE, TYPES)
def mask_parts(graph: Graph) -> frozenset[Value]:
    """Masked scores, and what becomes a part of them and of nothing else."""
    scopes = scopes_of(graph)
    found = set(masked_scores(graph))
    made = (value for op in reversed(scopes.ops) for value in op.outputs)
    for value in chain(made, filter(_is_float, graph.inputs)):
        if value is None or scopes.is_exposed(value) or scopes.onward(value):
            continue
        uses = list(scopes.uses(value))
        if uses and all(makes_masks(use, found) for use in uses):
            found.add(value)
    return frozenset(found)


def makes_masks(use: Use, masks: Set[Value]) -> bool:
    """Whether a large number that ``use`` reads only makes numbers of ``masks`` large."""
    found = traits(use.op)
    return use.op.outputs[0] in masks and (found.spreads or use.port in found.ordered)


def _is_seen_by_softmax_only(scopes: Scopes, value: Value, unseen: set[Value]) -> bool:
    uses = list(scopes.uses(value))
    if not uses or scopes.is_exposed(value) or scopes.onward(value):
        return False
    for op, port in uses:
        region = op.region
        inside = region is not None and region.name in _SOFTMAX_REGIONS
        passes_on = any(port == place for place, _ in _passed_on(op)) and op.outputs[0] in unseen
        if not (inside or passes_on or (op.is_type("Softmax") and port == 0)):
            return False
    return True


def _passed_on(op: Op) -> Iterator[tuple[int, Value]]:
    """The inputs of an op, with their ports, whose numbers it moves, chooses from or limits."""
    ordered = traits(op).ordered
    for port, value in enumerate(op.inputs):
        if value is not None and port in ordered:
            yield port, value


@analysis(STRUCTURE, TYPES, CONSTANTS)
def infinite_values(graph: Graph) -> frozenset[Value]:
    """Values that can hold NaN or an infinity of a constant, or what stands for it.

    Scores that only Softmax sees are not among them as long as they are finite: a grid for what is not masked
    saturates far enough below.
    """
    huge = huge_values(graph)
    return huge - (masked_scores(graph) - _reached_by(graph, math.inf)) if huge else huge


@analysis(STRUCTURE, TYPES, CONSTANTS)
def huge_values(graph: Graph) -> frozenset[Value]:
    """Values that can hold an infinity of a constant, or what stands for it; infinite in 16-bit floats."""
    return _reached_by(graph, _AS_INFINITE)


def _reached_by(graph: Graph, least: float) -> frozenset[Value]:
    """Values that can hold a number of a constant that is at least so large, or NaN."""
    scopes = scopes_of(graph)
    filled = dict(_filled(scopes))
    found = {value for value, fill in filled.items() if not math.isfinite(fill)}
    holding = {value: not abs(fill) < least for value, fill in filled.items()}

    def may_be_infinite(value: Value | None) -> bool:
        if value is None:
            return False
        value = value.original
        if value.const is not None and value not in holding:
            holding[value] = _holds(value, least)
        return value in found or holding.get(value, False)

    while True:
        count = len(found)
        for op in scopes.ops:
            if any(map(may_be_infinite, _passing_inputs(op))):
                found.update(filter(_is_float, op.outputs))
            for edge in scopes.branch_edges.get(op, ()):
                if any(map(may_be_infinite, edge.sources)):
                    found.update(filter(_is_float, edge.results))
        # Only what a loop carries around can have changed something that was visited before.
        if len(found) == count or not scopes.branch_edges:
            return frozenset(found)


def _passing_inputs(op: Op) -> tuple[Value | None, ...]:
    """The inputs whose infinity can become one of a result."""
    inputs = op.inputs
    if is_grid_preserving(op):
        return inputs[:1]
    return inputs if traits(op).spreads else ()


def _filled(scopes: Scopes) -> Iterator[tuple[Value, float]]:
    """Tensors of one number whose shape only a run knows, with the number; folding leaves no others."""
    for op in scopes.ops:
        stored: TensorProto | None = op.attribute("value") if op.is_type("ConstantOfShape") else None
        if stored is None or stored.data_type != TensorProto.FLOAT:
            continue
        number = float(numpy_helper.to_array(stored).item())
        yield from ((value, number) for value in op.outputs if value is not None)


def _is_float(value: Value | None) -> TypeGuard[Value]:
    return value is not None and value.is_float


def holds_infinity(value: Value) -> bool:
    """Whether a float32 constant has an infinity, a number that stands for it, or NaN."""
    return _holds(value, _AS_INFINITE)


def _holds(value: Value, least: float) -> bool:
    if value.const is None or not is_plain_float(value):
        return False
    low, high = value.const.extremes()
    return not max(high, -low) < least  # NaN is less than nothing
