"""How paired ops differ: in their attributes, and in what they read and make."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import zip_longest

from onnx import TensorProto

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value

from .alignment import corresponding
from .contents import attributes
from .pairs import GraphPair, ModelPair
from .result import CHANGED, OPS, Difference
from .wiring import GraphWiring, Read

_SHOWN = 8


def op_differences(comparison: ModelPair) -> Iterator[Difference]:
    """One difference for each paired op that is not the same as before, and for each rewired graph output."""
    for pair in comparison.scopes:
        sources = _Sources(comparison, pair)
        for op, partner in comparison.pairs(pair):
            changes = [
                *_attribute_changes(op, partner),
                *sources.changes(op, partner),
                *_forms(pair, op, partner),
            ]
            if changes:
                yield Difference(CHANGED, OPS, op.label, "; ".join(changes), pair.label)
        yield from sources.output_differences()


def _attribute_changes(a: Op, b: Op) -> Iterator[str]:
    before, after = attributes(a), attributes(b)
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield f"attribute {name}={_shown(a, name)} removed"
        elif name not in before:
            yield f"attribute {name}={_shown(b, name)} added"
        elif before[name] != after[name]:
            yield f"{name} {_shown(a, name)} -> {_shown(b, name)}"


def _shown(op: Op, name: str) -> str:
    if op.attributes[name].ref_attr_name:
        return f"@{op.attributes[name].ref_attr_name}"
    value = op.attribute(name)
    if isinstance(value, TensorProto):
        return f"{TensorProto.DataType.Name(value.data_type).lower()}{list(value.dims)}"
    if isinstance(value, list):
        rest = ", ..." if len(value) > _SHOWN else ""
        return f"[{', '.join(_number(item) for item in value[:_SHOWN])}{rest}]"
    return _number(value) if isinstance(value, (int, float, str)) else type(value).__name__


def _number(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _forms(pair: GraphPair, a: Op, b: Op) -> Iterator[str]:
    """Outputs and subgraphs that one of the ops lacks."""
    results = zip_longest(pair.a.results[a], pair.b.results[b])
    for port, (before, after) in enumerate(results):
        if before is None and after is not None:
            yield f"output {port} '{after.name}' added"
        elif before is not None and after is None:
            yield f"output {port} '{before.name}' removed"
    yield from (f"subgraph {key} removed" for key in a.subgraphs if key not in b.subgraphs)
    yield from (f"subgraph {key} added" for key in b.subgraphs if key not in a.subgraphs)


class _Sources:
    """Compares what is read, behind the ops that came and went.

    A user of what a removed op made that now reads what the removed op had read is not rewired: that the op
    was removed tells all of it.
    """

    def __init__(self, comparison: ModelPair, pair: GraphPair) -> None:
        self._pair = pair
        self._alignment = comparison.alignment
        self._contents = comparison.contents
        self._behind_a: dict[Value, Value | None] = {}
        self._behind_b: dict[Value, Value | None] = {}

    def changes(self, a: Op, b: Op) -> Iterator[str]:
        """The inputs that differ."""
        folded = self._pair.folds[a].ports if a in self._pair.folds else ()
        for port, (before, after) in enumerate(zip_longest(self._pair.a.reads[a], self._pair.b.reads[b])):
            if port in folded:
                continue
            if before is None and after is not None:
                yield f"input {port} added: {self._named(after)}"
            elif before is not None and after is None:
                yield f"input {port} removed: {self._named(before)}"
            elif before is not None and after is not None and not self._same(before, after):
                yield f"input {port} was {self._named(before)}, is {self._named(after)}"

    def output_differences(self) -> Iterator[Difference]:
        """The outputs of the graph that come from elsewhere."""
        a, b = self._pair.a, self._pair.b
        for before, after in corresponding(a.graph.outputs, b.graph.outputs, self._pair.by_position):
            if before is None or after is None or self._same(a.outputs[before], b.outputs[after]):
                continue
            detail = f"was {self._named(a.outputs[before])}, is {self._named(b.outputs[after])}"
            yield Difference(CHANGED, OPS, f"output '{before.name}'", detail, self._pair.label)

    def _same(self, a: Read, b: Read) -> bool:
        """Whether both read what corresponds; how the numbers of two constants differ is told elsewhere."""
        source_a = _source(self._pair.a, a.value, self._alignment.ops, self._behind_a)
        source_b = _source(self._pair.b, b.value, self._alignment.ops_back, self._behind_b)
        if source_a is None or source_b is None:
            return source_a is source_b
        values = self._alignment.values
        return values.get(a.value) is b.value or values.get(source_a) is source_b

    def _named(self, read: Read) -> str:
        constant = self._contents.data(read.value) is not None
        return f"{'the constant ' if constant else ''}'{read.value.name}'"


def _source(
    scope: GraphWiring, value: Value, paired: Container[Op], known: dict[Value, Value | None]
) -> Value | None:
    """The nearest tensor before ``value`` that a paired op makes, or that comes from outside.

    None for a constant and for what unpaired ops compute from constants alone, which may be folded.
    """
    passed: list[Value] = []
    found: Value | None = value
    while found is not None and found not in known:
        passed.append(found)
        producer = scope.producer.get(found)
        if producer is None:
            found = None if constant_data(found) is not None else found
            break
        if producer in paired:
            break
        reads = (read.value for read in scope.reads[producer] if read is not None)
        found = next((value for value in reads if constant_data(value) is None), None)
    if found is not None:
        found = known.get(found, found)
    known.update(dict.fromkeys(passed, found))
    return found
