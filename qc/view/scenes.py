"""Which graphs of a model, and which of their ops, are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qc.diff.wiring import GraphWiring, Wiring
from qc.ir.errors import UsageError
from qc.ir.facts.scopes import no_such_tensor, tensor_of_op
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from .folding import folded
from .picture import Picture, module_pictures, picture_of

MAX_OPS = 20_000


@dataclass(frozen=True)
class Crop:
    """A part of a model: the ops that are at most ``radius`` steps from a tensor.

    The name of an op stands for its first result, unless a tensor has it.
    """

    tensor: str
    radius: int


def pictures_of(wiring: Wiring, crop: Crop | None, *, is_page: bool = True) -> list[Picture]:
    """The pictures of all graphs, or of what is around a tensor; large graphs have modules.

    Args:
        is_page: whether it is for a page, which can show only so many ops, and has modules.

    Raises:
        UsageError: there are too many ops, or no tensor of that name.
    """
    if crop is None:
        shown = {op: None for scope in wiring.scopes.values() for op in scope.ops}
    else:
        shown = _around(wiring, crop)
    if is_page and len(shown) > MAX_OPS:
        way = "a smaller --radius" if crop is not None else "--around TENSOR, which shows a part of it"
        raise UsageError(f"a page shows at most {MAX_OPS:,} ops, and these are {len(shown):,}: give {way}")
    labels = dict(_labels(wiring.model))
    pictures = []
    for graph, scope in wiring.scopes.items():
        ops = [op for op in scope.ops if op in shown]
        items = folded(scope, ops) if is_page else ops
        pictures += [picture_of(scope, labels[graph], items), *module_pictures(scope, graph, items)]
    return [picture for picture in pictures if picture.boxes]


def _labels(model: Model) -> Iterator[tuple[Graph, str]]:
    """All graphs, and where they are: nothing for the main graph."""
    tops = [(model.graph, "")]
    tops += [(body, f"function {domain}::{name}") for (domain, name, _), body in model.functions.items()]
    for top, label in tops:
        pending = [(top, label)]
        while pending:
            graph, label = pending.pop()
            yield graph, label
            within = f" in {label}" if label else ""
            pending += [
                (nested, f"{key} of {op.label}{within}")
                for op in graph.ops()
                for key, nested in op.subgraphs.items()
            ]


def _around(wiring: Wiring, crop: Crop) -> dict[Op, None]:
    """The ops around a tensor, nearest first; constants connect nothing."""
    scope, value = _find(wiring, crop.tensor)
    found: dict[Op, None] = {}
    edge = [value]
    for _ in range(crop.radius):
        ops = [op for one in edge for op in _touching(scope, one) if op not in found]
        found.update(dict.fromkeys(ops))
        edge = [one for op in dict.fromkeys(ops) for one in _computed(scope, op)]
    return found


def _find(wiring: Wiring, name: str) -> tuple[GraphWiring, Value]:
    """The tensor of that name, or the first result of the op."""
    names: dict[str, None] = {}
    for wanted in (name, tensor_of_op(wiring.model, name)):
        for graph, scope in wiring.scopes.items():
            for value in graph.values():
                if value.name == wanted and value.captured is None:
                    return scope, wiring.read(value).value
                names[value.name] = None
    raise no_such_tensor(name, names)


def _touching(scope: GraphWiring, value: Value) -> Iterator[Op]:
    if value in scope.producer:
        yield scope.producer[value]
    yield from (user.op for user in scope.users.get(value, ()))


def _computed(scope: GraphWiring, op: Op) -> Iterator[Value]:
    """The tensors at ``op`` that are made by ops of its graph."""
    reads = (read.value for read in scope.reads[op] if read is not None)
    for value in (*reads, *scope.captured.get(op, ()), *scope.results[op]):
        if value is not None and value in scope.producer:
            yield value
