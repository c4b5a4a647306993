"""The supergroups of a model: what the patterns find, and what they must find by a count without patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op
from qc.ir.model import Model
from qc.patterns import Match, blocks, find_all, supergroups
from qc.patterns.attributes import scalar_of

NORMS = ("layer_norm", "rms_norm", "instance_norm", "group_norm")
_BETWEEN = (
    "Add",
    "Cast",
    "Clip",
    "Div",
    "Expand",
    "Max",
    "Mul",
    "Relu",
    "Reshape",
    "Sub",
    "Sum",
    "Unsqueeze",
)
_STEPS = 6  # from the root back to the mean, in the longest spelling


def census(model: Model) -> Counter[str]:
    """How often every supergroup occurs in a model, its subgraphs and functions."""
    graphs = model.graphs()
    return Counter(
        match.name
        for graph in graphs
        for groups in (supergroups(), blocks())
        for match in find_all(graph, groups)
    )


def census_line(name: str, counts: Counter[str]) -> str:
    """A line of a golden file."""
    return f"{name}: " + ", ".join(f"{group} {count}" for group, count in sorted(counts.items()))


def missed(graph: Graph) -> Iterator[Op]:
    """The ops that give away a LayerNorm, RMSNorm or GELU and are in no match of that name.

    They are found without patterns: ops of these names, Erf, the constant of GELU's approximation, and roots
    of what comes from a mean. An op that nothing reads is no part of a formula.
    """
    matches = find_all(graph, supergroups())
    for op, names in telltales(graph):
        if not any(op in match.ops and _is_one_of(match, names) for match in matches):
            yield op


def telltales(graph: Graph) -> Iterator[tuple[Op, tuple[str, ...]]]:
    """Ops that give away a supergroup, with the names it may have."""
    for op in graph.ops():
        if op.is_type("LayerNormalization"):
            yield op, ("layer_norm",)
        elif op.is_type("RMSNormalization"):
            yield op, ("rms_norm",)
        elif op.is_type("Gelu") or (op.is_type("Erf") and _is_read(op)) or _reads_cubic_factor(op):
            yield op, ("gelu",)
        elif op.is_type("Sqrt") and _is_read(op) and _comes_from_mean(op):
            yield op, NORMS


def _is_one_of(match: Match, names: Iterable[str]) -> bool:
    return match.name.endswith(tuple(names))


def _is_read(op: Op) -> bool:
    return any(value.uses for value in op.outputs if value is not None)


def _reads_cubic_factor(op: Op) -> bool:
    numbers = (constant_data(value) for value in op.inputs if value is not None)
    scalars = (scalar_of(data) for data in numbers if data is not None and data.is_small)
    return any(number is not None and abs(number - 0.044715) < 1e-6 for number in scalars)


def _comes_from_mean(op: Op) -> bool:
    """Whether ReduceMean is found going back from ``op`` through arithmetic."""
    front = {op}
    for _ in range(_STEPS):
        makers = (value.producer for each in front for value in each.inputs if value is not None)
        before = {maker for maker in makers if maker is not None}
        if any(maker.is_type("ReduceMean") for maker in before):
            return True
        front = {maker for maker in before if maker.is_type(*_BETWEEN)}
    return False
