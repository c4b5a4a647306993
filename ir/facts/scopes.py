"""Tensors across graphs: who reads one in the bodies of If, Loop and Scan, and what it becomes there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ..analysis import STRUCTURE, analysis
from ..base.names import Names
from ..errors import UsageError, nearest
from ..graph import Graph, Op, Use, Value
from ..model import Model
from ..rewriter import Rewriter

CONTROL_FLOW = ("If", "Loop", "Scan")

_BATCHED_SCAN = 8  # in this opset Scan has another interface, with a batch
_LOOP_INPUTS = 2  # of its body, before what is carried: the iteration and the condition


@dataclass(frozen=True)
class RegionBranchEdge:
    """One place of the interface of bodies, which numbers pass unchanged (a region-branch edge, as in MLIR).

    Attributes:
        op: the If, Loop or Scan.
        port: the input of ``op`` where a tensor comes in; None if none does.
        given: the tensor that comes in, by its original.
        inside: the input of the body as which it arrives.
        yielded: what the bodies give back here, by originals.
        outside: the output of ``op`` as which that arrives.
    """

    op: Op
    port: int | None = None
    given: Value | None = None
    inside: Value | None = None
    yielded: tuple[Value, ...] = ()
    outside: Value | None = None

    @property
    def sources(self) -> tuple[Value, ...]:
        """All that goes in, by originals."""
        given = (self.given,) if self.given is not None else ()
        return tuple(dict.fromkeys((*given, *self.yielded)))

    @property
    def results(self) -> tuple[Value, ...]:
        """All that comes out; it holds nothing but numbers of the sources."""
        return tuple(value for value in (self.inside, self.outside) if value is not None)


class Scopes:
    """The tensors of a main graph and of all bodies in it, see :func:`scopes_of`.

    A tensor is asked about by its original or a captured value, and answered with originals.

    Attributes:
        graphs: the main graph and all nested ones, outer before inner.
        ops: their ops in topological order, those of a body right before the op that it belongs to.
        branch_edges: by If, Loop or Scan, what its bodies take in and give back. Other ops with bodies are
            not among the keys: only their runtimes know what those do.
    """

    def __init__(self, graph: Graph) -> None:
        self.graphs: Sequence[Graph] = tuple(graph.walk())
        self.ops: Sequence[Op] = tuple(_ops_from_inside(graph))
        self.branch_edges: Mapping[Op, Sequence[RegionBranchEdge]] = {
            op: tuple(_edges_of(op)) for op in self.ops if _has_known_bodies(op)
        }
        self._captured = captured_values(self.graphs)
        self._onward: dict[Value, dict[Value, None]] = {}
        for edge in (edge for edges in self.branch_edges.values() for edge in edges):
            for source in edge.sources:
                self._onward.setdefault(source, {}).update(dict.fromkeys(edge.results))
        self._entries = {
            Use(op, edge.port)
            for op, edges in self.branch_edges.items()
            for edge in edges
            if edge.port is not None
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scopes) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def aliases(self, value: Value) -> tuple[Value, ...]:
        """The original and all captured values of it."""
        return (value.original, *self._captured.get(value.original, ()))

    def uses(self, value: Value) -> Iterator[Use]:
        """All readings of a tensor by ops, in whatever graph. What only passes into a body is not read."""
        for alias in self.aliases(value):
            for use in alias.uses:
                if isinstance(use.port, int) and use not in self._entries:
                    yield use

    def onward(self, value: Value) -> tuple[Value, ...]:
        """What a tensor becomes where it passes into or out of a body."""
        return tuple(self._onward.get(value.original, ()))

    def leaves(self, value: Value) -> bool:
        """Whether the tensor is an output of the model, or goes where nobody can follow it."""
        holders = [alias.graph for alias in self.aliases(value) if alias.is_output]
        return any(graph.parent is None or graph.parent not in self.branch_edges for graph in holders)

    def is_exposed(self, value: Value) -> bool:
        """Whether the tensor is, or becomes by passing out of bodies, an output of the model."""
        pending, known = [value.original], {value.original}
        while pending:
            current = pending.pop()
            if self.leaves(current):
                return True
            reached = [result for result in self.onward(current) if result not in known]
            pending.extend(reached)
            known.update(reached)
        return False


@analysis(STRUCTURE)
def scopes_of(graph: Graph) -> Scopes:
    """The tensors of the main graph and of all bodies in it, as the model is now."""
    return Scopes(graph)


def captured_values(graphs: Sequence[Graph]) -> dict[Value, list[Value]]:
    """By tensor, all values of the graphs that capture it."""
    found: dict[Value, list[Value]] = {}
    for graph in graphs:
        for value in graph.values() if graph.parent is not None else ():
            if value.captured is not None:
                found.setdefault(value.original, []).append(value)
    return found


def distinct_names(model: Model) -> dict[Value, str]:
    """Names of their own for the tensors of bodies and functions whose names other graphs use as well.

    Such a name is a path, as ``y/then_branch/x`` for the tensor x in a branch of the If whose result is y.
    """
    graphs = list(model.graphs())
    named = [value for graph in graphs for value in graph.values() if value.captured is None]
    count = Counter(value.name for value in named)
    names = Names(count)
    found: dict[Value, str] = {}
    paths = {graph: _path(model, graph) for graph in graphs}
    for value in named:
        if count[value.name] > 1 and value.graph is not model.graph:
            found[value] = names.free(f"{paths[value.graph]}{value.name}")
            names.claim(found[value])
    return found


@analysis(STRUCTURE)
def tensors_by_name(model: Model) -> Mapping[str, Value]:
    """All tensors of a model by name, or by path where several graphs use one; see :func:`distinct_names`."""
    names = distinct_names(model)
    values = (value for graph in model.graphs() for value in graph.values() if value.captured is None)
    return {names.get(value, value.name): value for value in values}


def tensor_of_op(model: Model, name: str) -> str | None:
    """The first result of the op of that name, in the model as it is or else as it came; None without one."""
    ops = ((op.graph, op) for op in model.ops() if op.name == name)
    made = (value.name for graph, op in ops for value in op.outputs if value is not None)
    came = (node.output[0] for node in model.origin.graph.node if node.name == name and node.output)
    return next(chain(made, came), None)


def has_wildcard(name: str) -> bool:
    """Whether a name that stands for nothing is meant as a pattern of the shell."""
    return "*" in name or "?" in name


def no_such_tensor(name: str, known: Iterable[str]) -> UsageError:
    """What to raise for a name that stands for nothing, with the one that is most like it."""
    hint = "; one name is taken, without wildcards" if has_wildcard(name) else nearest(name, list(known))
    return UsageError(f"the model has no tensor or op '{name}'{hint}; 'qc print' lists all")


class Captures:
    """Brings values into the bodies that need them, through one captured value for each."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._made: dict[tuple[Graph, Value], Value] = {}

    def into(self, graph: Graph, value: Value) -> Value:
        """``value``, which is of ``graph`` or of one around it, as ops of ``graph`` can read it."""
        path = []
        while graph is not value.graph:
            assert graph.parent is not None
            path.append(graph)
            graph = graph.parent.graph
        for inner in reversed(path):
            if (inner, value) not in self._made:
                self._made[inner, value] = self._rewriter.capture(inner, value)
            value = self._made[inner, value]
        return value


def name_apart(rewriter: Rewriter) -> None:
    """Gives every tensor of the main graph and its bodies a name that no other one has."""
    inside = set(rewriter.model.graph.walk())
    for value, name in distinct_names(rewriter.model).items():
        if value.graph in inside:
            rewriter.rename(value, name)


def _path(model: Model, graph: Graph) -> str:
    """What stands before the names of a graph to tell them from those of others."""
    steps: list[str] = []
    while graph.parent is not None:
        owner = graph.parent
        key = next(key for key, body in owner.subgraphs.items() if body is graph)
        result = next((value for value in owner.outputs if value is not None), None)
        steps.append(f"{result.name if result is not None else owner.name or owner.op_type}/{key}/")
        graph = owner.graph
    if graph is not model.graph:
        steps.append(f"{graph.name}/")
    return "".join(reversed(steps))


def _ops_from_inside(graph: Graph) -> Iterator[Op]:
    for op in graph.ops():
        for body in op.subgraphs.values():
            yield from _ops_from_inside(body)
        yield op


def _has_known_bodies(op: Op) -> bool:
    if not op.subgraphs or not op.is_type(*CONTROL_FLOW):
        return False
    if op.is_type("If"):
        return True
    if len(op.subgraphs) != 1:
        return False  # no valid model, which only its runtime will say
    (body,) = op.subgraphs.values()
    if op.is_type("Loop"):
        return len(body.inputs) >= _LOOP_INPUTS
    sliced = op.attribute("num_scan_inputs", 0)
    return op.graph.model.opset > _BATCHED_SCAN and 0 <= sliced <= len(body.inputs)


def _edges_of(op: Op) -> Iterator[RegionBranchEdge]:
    results = op.outputs
    if not op.is_type("If"):
        yield from _loop_edges(op)
        return
    for index, result in enumerate(results):
        yield RegionBranchEdge(op, yielded=_yielded(op, index), outside=result)


def _loop_edges(op: Op) -> Iterator[RegionBranchEdge]:
    """First what is carried from one iteration to the next, then what a Scan reads in slices, then stacks."""
    (body,) = op.subgraphs.values()
    given, results = op.inputs, op.outputs
    # A Loop takes in a trip count and a condition first; its body gives back a condition first.
    first, back = (_LOOP_INPUTS, 1) if op.is_type("Loop") else (0, 0)
    end = len(body.inputs) - (op.attribute("num_scan_inputs", 0) if op.is_type("Scan") else 0)
    for port in range(first, min(len(body.inputs), len(given))):
        value = given[port]
        arrives = RegionBranchEdge(op, port, value.original if value is not None else None, body.inputs[port])
        if port < end:
            output = port - first
            last = results[output] if output < len(results) else None
            arrives = replace(arrives, yielded=_yielded(op, output + back), outside=last)
        yield arrives
    for output in range(end - first, len(results)):
        yield RegionBranchEdge(op, yielded=_yielded(op, output + back), outside=results[output])


def _yielded(op: Op, index: int) -> tuple[Value, ...]:
    """What the bodies of ``op`` give back at one place, by originals."""
    found = (body.outputs[index] for body in op.subgraphs.values() if index < len(body.outputs))
    return tuple(value.original for value in found if value is not None)
