"""Prints one graph: its interface, constants and ops, and what it declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from onnx import AttributeProto, FunctionProto, GraphProto, OperatorSetIdProto, ValueInfoProto

from ..graph import Graph, Op, Value
from ..model import FunctionKey, Model
from ..onnx.lower import declared, kept_declarations, ordered_attributes, ordered_constants
from ..onnx.protos import GRAPH_TYPES
from ..onnx.types import declare
from .attributes import AttributePrinter
from .residue import FUNCTION, GRAPH, GRAPH_ATTRIBUTE, NODE, node_texts, residue
from .runs import runs_text
from .scope import Place, Scope, function_path, graph_word, names_of, places
from .tensors import TensorPrinter
from .value_types import tensor_type, type_text
from .words import all_named, quoted, worded

# The fields of a node that some exporters write even if they are empty.
BLANK_FIELDS = ("doc_string", "domain", "name", "overload")


def blank_fields(model: Model) -> dict[str, str]:
    """The text fields that most nodes without such a text have nonetheless, with the empty text."""
    nodes = (op.proto for op in model.ops() if op.proto is not None)
    written: Counter[str] = Counter()
    for node in islice(nodes, 1000):
        for field in BLANK_FIELDS:
            if not getattr(node, field):
                written[field] += 1 if node.HasField(field) else -1  # type: ignore[arg-type]
    return {field: "" for field in BLANK_FIELDS if written[field] > 0}


class GraphPrinter:
    """Prints the graphs of one model.

    Args:
        tensors: writes the data of constants.
        blank: what :func:`blank_fields` found.

    Attributes:
        scopes: the names in each graph that is printed.
    """

    def __init__(self, tensors: TensorPrinter, blank: Mapping[str, str]) -> None:
        self.scopes: dict[Graph, Scope] = {}
        self._tensors = tensors
        self._attributes = AttributePrinter(tensors)
        self._blank = blank

    def graph(self, graph: Graph, outer: Scope | None = None, path: str = "", indent: str = "") -> str:
        """A main graph or a nested one; ``indent`` is not before its first line."""
        scope = self.scopes[graph] = Scope(graph, outer, path)
        origin = graph.proto if isinstance(graph.proto, GraphProto) else GraphProto(name=graph.name)
        head = f"graph {worded(graph.name)}({_inputs(scope, origin)}) {{"
        rest = residue(origin, GRAPH, {"name": graph.name} if graph.name else {})
        lines = [*as_line(rest), *self._body(scope, origin, indent + "  ")]
        return "\n".join([head, *(f"{indent}  {line}" for line in lines), f"{indent}}}"])

    def function(self, key: FunctionKey, graph: Graph) -> str:
        """A local function."""
        origin, path = graph.proto, function_path(*key)
        assert isinstance(origin, FunctionProto)
        scope = self.scopes[graph] = Scope(graph, None, f" in {path}")
        attributes = [worded(name) for name in origin.attribute]
        attributes += [f"{worded(a.name)}={self._attributes.text(a, path)}" for a in origin.attribute_proto]
        given = f"<{', '.join(attributes)}>" if attributes else ""
        like = GraphProto(value_info=origin.value_info)
        head = f"function {path}{given}({_inputs(scope, like)}) {{"
        opsets = f"opset {opsets_text(origin.opset_import)}".rstrip()
        shown = dict(zip(("domain", "name", "overload"), key, strict=True))
        rebuilt = {**shown, "input": names_of(graph.inputs), "output": names_of(graph.outputs)}
        rest = residue(origin, FUNCTION, {name: text for name, text in rebuilt.items() if text})
        lines = [*as_line(rest), opsets, *self._body(scope, like, "  ")]
        return "\n".join([head, *(f"  {line}" for line in lines), "}"])

    def _body(self, scope: Scope, origin: GraphProto, indent: str) -> list[str]:
        """The lines from the constants to what is declared; ``indent`` is for lines within a line."""
        graph = scope.graph
        ops = graph.ops()
        names = all_named([op.name or "_" for op in ops])
        lines = [*_without_source(scope), *self._constants(scope, origin), *_captures(scope)]
        for op, name, place in zip(ops, names, places(ops), strict=True):
            lines.append(self._op(scope, op, f" @{name}" if op.name else "", place, indent))
        return [*lines, _return(scope, origin), *_declarations(scope, origin), *_later(scope)]

    # -- constants ----------------------------------------------------------------------------------

    def _constants(self, scope: Scope, origin: GraphProto) -> Iterator[str]:
        constants = ordered_constants(scope.graph, origin)
        for value in constants.kept:
            yield self._constant("const", scope, value)
        for sparse, value in constants.sparse:
            text = self._attributes.sparse(sparse, scope.name(value) + scope.path)
            yield f"const {_typed(scope, value)} = sparse {text}"
        for value in constants.new:
            yield self._constant("new const", scope, value)

    def _constant(self, word: str, scope: Scope, value: Value) -> str:
        assert value.const is not None
        tensor = value.const.proto
        type = tensor_type(tensor)
        data = self._tensors.text(tensor, scope.name(value) + scope.path)
        given = [text for text in (type_text(type) if type != value.type else "", data) if text]
        return f"{word} {_typed(scope, value)}{' = ' if given else ''}{' '.join(given)}"

    # -- ops ----------------------------------------------------------------------------------------

    def _op(self, scope: Scope, op: Op, name: str, place: Place | None, indent: str) -> str:
        inputs = ", ".join(scope.mention_all(op.inputs))
        results = op.outputs
        kind = _kind(op.domain, op.op_type, op.overload)
        text = f"{', '.join(scope.introduce(results)) or '()'} = {kind}({inputs}){name}"
        if op.attributes or op.subgraphs:
            text += self._all_attributes(scope, op, scope.op(op), indent)
        if op.proto is None or place is not None:
            text += _history(op, place)
        rest = residue(op.proto, NODE, node_texts(op, self._blank)) if op.proto is not None else ""
        return f"{text}\n{indent} {rest}" if rest else text

    def _all_attributes(self, scope: Scope, op: Op, owner: str, indent: str) -> str:
        items = [self._attribute(scope, op, attribute, owner, indent) for attribute in ordered_attributes(op)]
        if not op.subgraphs:
            return f" {{{', '.join(items)}}}"
        lines = f",\n{indent}  ".join(items)
        return f" {{\n{indent}  {lines}\n{indent}}}"

    def _attribute(self, scope: Scope, op: Op, attribute: AttributeProto, owner: str, indent: str) -> str:
        name = worded(attribute.name)
        if attribute.type not in GRAPH_TYPES:
            return f"{name}={self._attributes.text(attribute, owner + scope.path)}"
        rest = residue(attribute, GRAPH_ATTRIBUTE)
        if attribute.type == AttributeProto.GRAPH:
            return f"{name}={self._nested(scope, op, attribute.name, owner, indent)}{rest}"
        keys = (f"{attribute.name}:{index}" for index in range(len(attribute.graphs)))
        graphs = (self._nested(scope, op, key, owner, indent) for key in keys)
        return f"{name}=graphs[{', '.join(graphs)}]{rest}"

    def _nested(self, scope: Scope, op: Op, key: str, owner: str, indent: str) -> str:
        path = f" in {graph_word(key)} of {owner}{scope.path}"
        return self.graph(op.subgraphs[key], scope, path, indent + "  ")


def opsets_text(entries: Iterable[OperatorSetIdProto]) -> str:
    """Imported operator sets: ``"" 21``; ``21`` where the domain is not there at all."""
    return ", ".join(
        f"{quoted(entry.domain)} {entry.version}" if entry.HasField("domain") else str(entry.version)
        for entry in entries
    )


def as_line(rest: str) -> list[str]:
    """A residue on a line of its own; none without a residue."""
    return [rest.lstrip()] if rest else []


def _typed(scope: Scope, value: Value) -> str:
    return f"{scope.mention(value)}: {type_text(value.type)}"


@lru_cache(maxsize=1 << 12)
def _kind(domain: str, op_type: str, overload: str) -> str:
    kind = f"{worded(domain)}::{worded(op_type)}" if domain else worded(op_type)
    return f"{kind}#{worded(overload)}" if overload else kind


def _history(op: Op, place: Place | None) -> str:
    """For an op that a pass made, why and in whose place."""
    by = "".join(f" {quoted(word)}" for word in op.provenance)
    made = f" by{by}" if op.proto is None else ""
    return made if place is None else f"{made} at {'.'.join(map(str, place))}"


def _without_source(scope: Scope) -> Iterator[str]:
    """Values that are no input, no constant and no result."""
    graph = scope.graph
    for value in graph.values():
        has_source = value.const is not None or value.producer is not None
        if not (has_source or value.captured is not None or value.is_input):
            yield f"value {_typed(scope, value)}"


def _captures(scope: Scope) -> Iterator[str]:
    """The captured values that the text has to introduce: those that are not just read under their name."""
    if scope.graph.parent is None:
        return
    for value in scope.graph.values():
        captured = value.captured
        if captured is None:
            continue
        if value in scope.second:
            yield f"capture {_typed(scope, value)} = {scope.outer_name(value)}"
        elif value.type != captured.type or not value.is_read:
            yield f"capture {_typed(scope, value)}"


def _later(scope: Scope) -> Iterator[str]:
    later = scope.later()
    if later:
        places = {id: place for place, id in enumerate(scope.order)}
        yield f"later {runs_text(list(map(scope.name, later)), [places[value.id] for value in later])}"


def _inputs(scope: Scope, origin: GraphProto) -> str:
    values = scope.graph.inputs
    rest = map(_declared, values, declared(values, origin.input))
    return ", ".join(map("".join, zip(scope.introduce(values), rest, strict=True)))


def _return(scope: Scope, origin: GraphProto) -> str:
    outputs = scope.graph.outputs
    infos = iter(declared([value for value in outputs if value is not None], origin.output))
    rest = ["" if value is None else _declared(value, next(infos)) for value in outputs]
    return f"return {', '.join(map(''.join, zip(scope.mention_all(outputs), rest, strict=True)))}".rstrip()


def _declarations(scope: Scope, origin: GraphProto) -> Iterator[str]:
    """The declarations within the graph, those of values as runs in the order of the text."""
    infos = kept_declarations(scope.graph, origin)
    if not infos:
        return
    order = list(scope.order.values())
    places = {value.name: place for place, value in enumerate(order) if scope.has_own_name(value)}
    names: list[str] = []
    numbers: list[int | None] = []
    for info in infos:
        place = places.pop(info.name, None)
        if place is not None and _declared(order[place], info):
            place = None
        names.append(residue(info).lstrip() if place is None else scope.name(order[place]))
        numbers.append(place)
    yield f"value_info {runs_text(names, numbers)}"


def _declared(value: Value, info: ValueInfoProto) -> str:
    """The residue of the declaration of a value, which tells its type only if that is another one."""
    return residue(info, rebuilt={field.name: content for field, content in declare(value).ListFields()})
