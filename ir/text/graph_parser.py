"""Reads one graph: its interface, constants and ops, and what it declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, ValueInfoProto

from ..graph import Graph, Op, Value
from ..model import FunctionKey, Model
from ..onnx.lift import MAX_NESTING, densified
from ..onnx.protos import GRAPH_TYPES
from ..onnx.types import declare
from ..tensor_ref import TensorRef
from ..value_type import ValueType
from .attributes import AttributeReader
from .parsed_scope import ParsedScope, outline
from .reader import Reader, bare_name
from .residue import FUNCTION, GRAPH, GRAPH_ATTRIBUTE, NODE, node_texts, read_residue
from .runs import TO
from .scanner import Scanner
from .scope import function_path, graph_word, names_of
from .tensors import TensorReader
from .value_types import read_type
from .words import INTEGER, NAME

_PLACE = re.compile(r"-?\d{1,18}(?:\.\d{1,18})*")
_ONCE = ("return", "value_info", "later")


class GraphReader:
    """Reads the graphs of a model.

    Args:
        model: takes the graphs.
        tensors: reads data.
        blank: the text fields that nodes of this model have even if they are empty, with the empty text.

    Attributes:
        scopes: what was read, by how the text names it; an empty text for the main graph.
    """

    def __init__(self, model: Model, reader: Reader, tensors: TensorReader, blank: Mapping[str, str]) -> None:
        self.scopes: dict[str, ParsedScope] = {}
        self._model = model
        self._reader = reader
        self._tensors = tensors
        self._attributes = AttributeReader(reader, tensors)
        self._blank = blank
        self._statements: dict[str, Callable[[ParsedScope], object]] = {
            "value": self._read_value,
            "const": self._read_constant,
            "new": partial(self._read_constant, is_new=True),
            "capture": self._read_capture,
            "return": self._read_return,
            "value_info": self._read_declarations,
            "later": self._read_later,
        }

    # -- graphs -------------------------------------------------------------------------------------

    def graph(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> ParsedScope:
        """A main graph or a nested one, into ``graph`` and ``proto``."""
        self._reader.expect_word("graph")
        scope = self._open(graph, outer, path, proto)
        graph.name, graph.proto = self._reader.word("the name of the graph"), proto
        if graph.name:
            proto.name = graph.name
        self._read_inputs(scope)
        read_residue(self._reader, proto, GRAPH)
        self._read_statements(scope)
        return scope

    def function(self, proto: FunctionProto) -> tuple[FunctionKey, Graph]:
        """A local function, into ``proto``."""
        key = self._reader.function_key()
        graph, path = Graph(self._model, key[1]), function_path(*key)
        scope = self._open(graph, None, f" in {path}", GraphProto())
        graph.proto = proto
        for field, text in zip(("domain", "name", "overload"), key, strict=True):
            if text:
                setattr(proto, field, text)
        if self._reader.accept("<"):
            self._reader.items(lambda: self._read_parameter(proto, path), ">")
        self._read_inputs(scope)
        read_residue(self._reader, proto, FUNCTION)
        self._reader.expect_word("opset")
        proto.opset_import.extend(read_opsets(self._reader))
        self._read_statements(scope)
        if not (proto.input or proto.output):
            proto.input.extend(names_of(graph.inputs))
            proto.output.extend(names_of(graph.outputs))
        proto.value_info.extend(scope.proto.value_info)
        return key, graph

    def _open(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> ParsedScope:
        scope = self.scopes[path] = ParsedScope(graph, outer, path, proto)
        if scope.depth > MAX_NESTING:
            raise self._reader.problem(f"graphs are nested at most {MAX_NESTING} deep")
        return scope

    def _read_inputs(self, scope: ParsedScope) -> None:
        def read() -> Value:
            value = self._read_value(scope)
            scope.proto.input.append(self._read_declared(value))
            return value

        self._reader.expect("(")
        scope.graph.inputs = self._reader.items(read, ")")
        self._reader.expect("{")

    def _read_parameter(self, proto: FunctionProto, path: str) -> None:
        name = self._reader.word("the name of an attribute")
        if self._reader.accept("="):
            proto.attribute_proto.append(self._attributes.read(name, path))
        else:
            proto.attribute.append(name)

    def _read_statements(self, scope: ParsedScope) -> None:
        reader = self._reader
        while not reader.accept("}"):
            word = reader.keyword()
            if word not in self._statements:
                self._read_op(scope)
                continue
            reader.expect(word)
            if word in scope.finished:
                raise reader.problem(f"the graph '{scope.graph.name}' has a second '{word}'")
            if word in _ONCE:
                scope.finished.add(word)
            self._statements[word](scope)
        if "return" not in scope.finished:
            raise reader.problem(f"the graph '{scope.graph.name}' ends without 'return'")
        scope.assemble()

    # -- values -------------------------------------------------------------------------------------

    def _read_value(self, scope: ParsedScope) -> Value:
        return self._add(scope, *self._read_typed())

    def _read_typed(self) -> tuple[str, ValueType, int]:
        """A name, a type, and where they begin."""
        start, name = self._reader.position, self._reader.value_name()
        self._reader.expect(":")
        return name, read_type(self._reader), start

    def _add(self, scope: ParsedScope, name: str, type: ValueType, start: int) -> Value:
        if name in scope.values:
            raise self._reader.problem(f"{name} is defined a second time", start)
        value = scope.values[name] = scope.announce(bare_name(name), type)
        return value

    def _read_capture(self, scope: ParsedScope) -> None:
        reader = self._reader
        name, type, start = self._read_typed()
        outside = scope.find_outside(reader.value_name() if reader.accept("=") else name)
        if outside is None:
            raise reader.problem(f"nothing around this graph is named like what {name} captures", start)
        self._add(scope, name, type, start).captured = outside

    def _read_constant(self, scope: ParsedScope, is_new: bool = False) -> None:
        """A constant, which may be the default of an input."""
        if is_new:
            self._reader.expect_word("const")
        name, type, start = self._read_typed()
        value = scope.values.get(name)
        if value is None:
            value = self._add(scope, name, type, start)
        elif value.const is not None or not value.is_input or value.type != type:
            raise self._reader.problem(f"{name} is defined a second time", start)
        given = self._reader.accept("=")
        if given and self._reader.accept_word("sparse"):
            value.const = self._read_sparse(scope, value, name + scope.path)
            return
        if given and not self._tensors.is_next():
            type = read_type(self._reader)
        tensor = self._tensors.read(type, name + scope.path)
        if not tensor.name:
            tensor.name = value.name
        value.const = TensorRef(tensor, self._model.base_dir, value.type.elem_type)
        if not is_new:
            scope.proto.initializer.append(outline(value.name, tensor))

    def _read_sparse(self, scope: ParsedScope, value: Value, key: str) -> TensorRef:
        start = self._reader.position
        sparse = self._attributes.sparse(key)
        if sparse.values.name != value.name:
            raise self._reader.problem(f"the values of the constant are not named '{value.name}'", start)
        scope.proto.sparse_initializer.append(sparse)
        return densified(sparse, self._model.base_dir)

    # -- ops ----------------------------------------------------------------------------------------

    def _read_op(self, scope: ParsedScope) -> None:
        reader, start = self._reader, self._reader.position
        announced = self._read_results()
        reader.expect("=")
        domain, op_type, overload = self._read_kind()
        reader.expect("(")
        inputs = reader.items(lambda: None if reader.accept("_") else reader.value(scope), ")")
        op = Op(scope.graph, 0, op_type, domain, reader.word("a name", NAME) if reader.accept("@") else "")
        op.overload, op.num_inputs, op.num_outputs = overload, len(inputs), len(announced)
        results = [result and scope.announce(bare_name(result[0]), result[1]) for result in announced]
        owner = next((result[0] for result in announced if result is not None), f"op {len(scope.ops)}")
        attributes = self._read_attributes(scope, op, owner) if reader.accept("{") else []
        for result, value in zip(announced, results, strict=True):
            if result and value and scope.values.setdefault(result[0], value) is not value:
                raise reader.problem(f"{result[0]} is defined a second time", start)
        if not self._read_history(scope, op):
            op.proto = NodeProto(op_type=op_type, **node_texts(op, self._blank))
            read_residue(reader, op.proto, NODE)
            op.proto.input.extend(names_of(inputs))
            op.proto.output.extend(names_of(results))
            op.proto.attribute.extend(attributes)
            attributes = list(op.proto.attribute)
        if attributes:
            op.attributes = {a.name: a for a in attributes if a.type not in GRAPH_TYPES}
        scope.add_op(op, inputs, results)

    def _read_results(self) -> list[tuple[str, ValueType] | None]:
        """Names and types; the names are not known before the end of the op."""
        reader = self._reader
        if reader.accept("("):
            reader.expect(")")
            return []
        return reader.series(lambda: None if reader.accept("_") else self._read_typed()[:2])

    def _read_kind(self) -> tuple[str, str, str]:
        reader, domain = self._reader, ""
        op_type = reader.word("the type of an op")
        if reader.accept("::"):
            domain, op_type = op_type, reader.word("the type of an op")
        return domain, op_type, reader.word("an overload") if reader.accept("#") else ""

    def _read_history(self, scope: ParsedScope, op: Op) -> bool:
        """Whether a pass made the op; why, and in whose place."""
        reader = self._reader
        is_new = reader.accept_word("by")
        reasons = []
        while is_new and reader.sees('"'):
            reasons.append(reader.string("a reason"))
        op.provenance = tuple(reasons)
        op.position = (scope.next_place,)
        if reader.accept_word("at"):
            op.position = tuple(map(int, reader.take(_PLACE, "a place, such as 3.1").split(".")))
        scope.next_place = op.position[0] + 1
        return is_new

    def _read_attributes(self, scope: ParsedScope, op: Op, owner: str) -> list[AttributeProto]:
        reader, start = self._reader, self._reader.position
        subgraphs: dict[str, Graph] = {}

        def nested(key: str) -> None:
            subgraphs[key] = Graph(scope.graph.model, "", parent=op)
            path = f" in {graph_word(key)} of {owner}{scope.path}"
            scope.add_captures(op, self.graph(subgraphs[key], scope, path, GraphProto()))

        found = reader.items(lambda: self._read_attribute(owner + scope.path, nested), "}")
        if len({attribute.name for attribute in found}) != len(found):
            raise reader.problem("an attribute is given twice", start)
        if subgraphs:
            op.subgraphs = subgraphs
        return found

    def _read_attribute(self, owner: str, nested: Callable[[str], None]) -> AttributeProto:
        """An attribute; ``nested`` reads a graph under a key."""
        reader = self._reader
        name = reader.word("the name of an attribute")
        reader.expect("=")
        word = reader.keyword()
        if word == "graph":
            attribute = AttributeProto(name=name, type=AttributeProto.GRAPH)
            nested(name)
        elif word == "graphs":
            attribute = AttributeProto(name=name, type=AttributeProto.GRAPHS)
            reader.expect("graphs[")
            while not reader.accept("]"):
                if attribute.graphs:
                    reader.expect(",")
                nested(f"{name}:{len(attribute.graphs)}")
                attribute.graphs.add()
        else:
            return self._attributes.read(name, owner)
        read_residue(reader, attribute, GRAPH_ATTRIBUTE)
        return attribute

    # -- behind the ops -----------------------------------------------------------------------------

    def _read_declared(self, value: Value) -> ValueInfoProto:
        info = declare(value)
        read_residue(self._reader, info, {"name"})
        return info

    def _read_return(self, scope: ParsedScope) -> None:
        reader = self._reader
        outputs: list[Value | None] = []
        while reader.sees("%") or reader.sees("_"):
            value = None if reader.accept("_") else reader.value(scope)
            outputs.append(value)
            if value is not None:
                scope.proto.output.append(self._read_declared(value))
            if not reader.accept(","):
                break
        scope.graph.outputs = outputs

    def _read_declarations(self, scope: ParsedScope) -> None:
        reader, infos, run = self._reader, scope.proto.value_info, self._runs(scope)

        def read() -> None:
            if reader.keyword() == "raw":
                read_residue(reader, infos.add())
            else:
                infos.extend(map(declare, run()))

        reader.series(read)

    def _read_later(self, scope: ParsedScope) -> None:
        run = self._runs(scope)
        self._reader.series(lambda: scope.later.extend(run()))

    def _runs(self, scope: ParsedScope) -> Callable[[], list[Value]]:
        """What reads a value, or all from one to another in the order of the text; each value just once."""
        reader, seen = self._reader, set[Value]()
        places = {value: place for place, value in enumerate(scope.order)}

        def run() -> list[Value]:
            start = reader.position
            first = last = reader.own_value(scope, reader.mention())
            if reader.accept(TO):
                last = reader.own_value(scope, reader.mention())
            found = scope.order[places[first] : places[last] + 1]
            if not found:
                raise reader.problem("this is no run of values", start)
            if not seen.isdisjoint(found):
                raise reader.problem("a value is named twice", start)
            seen.update(found)
            return found

        return run


def read_opsets(scanner: Scanner) -> list[OperatorSetIdProto]:
    """What :func:`qc.ir.text.graph_printer.opsets_text` writes."""
    found: list[OperatorSetIdProto] = []
    while scanner.sees('"') or scanner.looks_at(INTEGER):
        entry = OperatorSetIdProto()
        if scanner.sees('"'):
            entry.domain = scanner.string("a domain")
        entry.version = scanner.integer("a version")
        found.append(entry)
        if not scanner.accept(","):
            break
    return found
