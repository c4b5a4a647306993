"""Tells about ops that came and went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value

from .edits import Edit
from .pairs import GraphPair, ModelPair
from .result import ADDED, CHANGED, OPS, REMOVED, Difference
from .wiring import GraphWiring

_NAMED = 3


def edit_differences(comparison: ModelPair) -> Iterator[Difference]:
    """One difference for each place where ops were added, removed or replaced."""
    for pair in comparison.scopes:
        for edit in pair.edits:
            yield _difference(edit, pair)


def _difference(edit: Edit, pair: GraphPair) -> Difference:
    removed, added = (tuple(op.label for op in ops) for ops in (edit.removed, edit.added))
    if removed and added:
        return Difference(
            CHANGED, OPS, _summary(edit.removed), f"became {_summary(edit.added)}", pair.label, added, removed
        )
    scope, ops, sign = (pair.a, edit.removed, REMOVED) if removed else (pair.b, edit.added, ADDED)
    detail = f"folded into {edit.fold.into.label}" if edit.fold is not None else _place(scope, ops)
    return Difference(sign, OPS, _summary(ops), detail, pair.label, added, removed)


def _summary(ops: Sequence[Op]) -> str:
    """The ops by label, many ones by type."""
    if len(ops) <= _NAMED:
        return ", ".join(_label(op) for op in ops)
    kinds = Counter(op.op_type for op in ops)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(_NAMED))
    rest = len(kinds) - _NAMED
    more = f" and {rest} other type{'s' if rest > 1 else ''}" if rest > 0 else ""
    return f"{len(ops)} ops ending in {_label(ops[-1])} ({listed}{more})"


def _label(op: Op) -> str:
    inside = sum(len(graph.ops()) for nested in op.subgraphs.values() for graph in nested.walk())
    return f"{op.label} with {inside} op{'s' if inside > 1 else ''} inside" if inside else op.label


def _place(scope: GraphWiring, ops: Sequence[Op]) -> str:
    """Behind which tensor, and before which op, the ops stand."""
    own = set(ops)
    sources = (value for op in ops for value in _sources(scope, op) if scope.producer.get(value) not in own)
    source = next(sources, None)
    made = [value for op in ops for value in scope.results[op] if value is not None]
    users = (user.op for value in made for user in scope.users.get(value, ()))
    outside = (user.label for user in users if user not in own)
    user = next(outside, None) or next(_outputs(scope, made), None)
    behind = f"behind '{source.name}'" if source is not None else ""
    before = f"before {user}" if user is not None else "read by nothing"
    return ", ".join(filter(None, (behind, before)))


def _sources(scope: GraphWiring, op: Op) -> Iterator[Value]:
    """The tensors that ``op`` reads, constants left out."""
    values = (read.value for read in scope.reads[op] if read is not None)
    return (value for value in values if constant_data(value) is None)


def _outputs(scope: GraphWiring, made: Iterable[Value]) -> Iterator[str]:
    return (f"output '{output.name}'" for value in made for output in scope.given_as.get(value, ()))
