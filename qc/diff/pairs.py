"""Two aligned models side by side, as all parts of the comparison see them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from .alignment import Alignment, align, are_names_kept
from .contents import Contents
from .edits import Edit, find_edits
from .folding import Fold, Folding
from .wiring import GraphWiring, Wiring


@dataclass(frozen=True)
class GraphPair:
    """Two graphs that correspond.

    Attributes:
        label: where they are; empty for the main graphs.
        by_position: their inputs and outputs correspond by position, not by name.
        edits: the ops that came and went.
        folds: what became part of the weights of an op, by that op of the first graph.
    """

    a: GraphWiring
    b: GraphWiring
    label: str
    by_position: bool
    edits: list[Edit]
    folds: dict[Op, Fold]


@dataclass(frozen=True)
class ModelPair:
    """Two models and what of one is what of the other.

    Attributes:
        names_kept: whether names mean the same in both.
    """

    a: Wiring
    b: Wiring
    names_kept: bool
    alignment: Alignment = field(default_factory=Alignment)
    contents: Contents = field(default_factory=Contents)
    scopes: list[GraphPair] = field(default_factory=list)

    def pairs(self, pair: GraphPair) -> Iterator[tuple[Op, Op]]:
        """The paired ops of two graphs, in the order of the first."""
        for op in pair.a.ops:
            partner = self.alignment.ops.get(op)
            if partner is not None:
                yield op, partner

    def name(self, b: Value) -> str:
        """The name of a tensor of the second model, in the first if it is in there."""
        return self.alignment.values_back.get(b, b).name


def compared(a: Model, b: Model) -> ModelPair:
    """Aligns two models: main graphs, functions of one name, then what is nested in paired ops."""
    wirings = Wiring(a), Wiring(b)
    found = ModelPair(*wirings, are_names_kept(*(wiring.scopes.values() for wiring in wirings)))
    pending: deque[tuple[Graph, Graph, str]] = deque([(a.graph, b.graph, "")])
    pending += [
        (a.functions[key], b.functions[key], f"function {function_label(key)}")
        for key in a.functions
        if key in b.functions
    ]
    while pending:
        graph_a, graph_b, label = pending.popleft()
        pair = _paired(found, found.a.scopes[graph_a], found.b.scopes[graph_b], label, graph_a is not a.graph)
        found.scopes.append(pair)
        within = f" in {label}" if label else ""
        for op, partner in found.pairs(pair):
            pending += [
                (nested, partner.subgraphs[key], f"{key} of {op.label}{within}")
                for key, nested in op.subgraphs.items()
                if key in partner.subgraphs
            ]
    return found


def _paired(found: ModelPair, a: GraphWiring, b: GraphWiring, label: str, by_position: bool) -> GraphPair:
    """Aligns two graphs, and sees which ops came and went."""
    align(a, b, by_position, found.names_kept, found.alignment, found.contents)
    edits = find_edits(a, b, by_position, found.alignment)
    folding = Folding(a, b, found.alignment.ops, found.contents)
    edits = [part for edit in edits for part in _without_folds(edit, folding)]
    folds = {edit.fold.into: edit.fold for edit in edits if edit.fold is not None}
    return GraphPair(a, b, label, by_position, edits, folds)


def _without_folds(edit: Edit, folding: Folding) -> Iterator[Edit]:
    """An edit, apart from it what was folded: ops behind a normalization may have become others."""
    for chain in folding.chains(edit.removed):
        for length in range(len(chain), 0, -1):
            fold = folding.find(chain[:length])
            if fold is not None:
                yield Edit(chain[:length], fold=fold)
                edit.removed = [op for op in edit.removed if op not in chain[:length]]
                break
    if edit.removed or edit.added:
        yield edit


def function_label(key: tuple[str, str, str]) -> str:
    """``domain::name``, with the overload if there is one."""
    domain, name, overload = key
    return f"{domain}::{name}{':' if overload else ''}{overload}"
