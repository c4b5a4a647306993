"""Reads one graph: its interface, constants and ops, and what its protos carry besides."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, ValueInfoProto

from ..graph import Graph, Value, ValueType
from ..model import FunctionKey, Model
from ..onnx.lift import MAX_NESTING, densified
from ..onnx.types import declare
from ..tensor_ref import TensorRef
from . import said
from .assembly import assemble, fill_graph_proto
from .attributes import AttributeReader
from .carried import completed, read_note
from .op_parser import OpReader
from .parsed_scope import DECLARED, ParsedScope
from .references import References
from .runs import accept_to
from .scanner import Scanner
from .scope import function_path
from .storage import Sources
from .tensors import TensorReader
from .value_types import read_declared, read_type
from .words import INTEGER

_KINDS: dict[str, tuple[type[Any], frozenset[str]]] = {
    "graph": (GraphProto, said.GRAPH),
    "function": (FunctionProto, said.FUNCTION - said.INTERFACE),
}


class GraphReader:
    """Reads the graphs of a model.

    Args:
        model: takes the graphs.
        blank: the text fields that nodes of this model have even if they are empty.

    Attributes:
        scopes: what was read, by how the text names it; an empty text for the main graph.
        references, tensors: read what the text names, and data.
    """

    def __init__(self, model: Model, scanner: Scanner, sources: Sources, blank: frozenset[str]) -> None:
        self.scopes: dict[str, ParsedScope] = {}
        self._model = model
        self._scanner = scanner
        self.references = References(scanner)
        self.tensors = TensorReader(scanner, sources)
        self._attributes = AttributeReader(scanner, self.tensors)
        self._ops = OpReader(scanner, self.references, self._attributes, self.graph)
        self._blank = blank
        self._listed = 0  # values in runs so far
        self._statements: dict[str, Callable[[ParsedScope], None]] = {
            "value": self._read_value,
            "const": self._read_constant,
            "new": self._read_new_constant,
            "capture": self._read_capture,
            "return": self._read_return,
            "value_info": self._read_declarations,
            "later": self._read_later,
            "about": self._read_note,
        }

    # -- graphs -------------------------------------------------------------------------------------

    def graph(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> ParsedScope:
        """A main graph or a nested one, into ``graph`` and ``proto``."""
        self._scanner.expect_word("graph")
        scope = self._open(graph, outer, path)
        graph.name = self._scanner.word("the name of the graph")
        self._read_inputs(scope)
        self._scanner.expect("{")
        self._read_statements(scope)
        fill_graph_proto(scope, proto)
        graph.proto = proto
        return scope

    def function(self, proto: FunctionProto) -> tuple[FunctionKey, Graph]:
        """A local function, into ``proto``."""
        key = self.references.function_key()
        graph = Graph(self._model, key[1])
        scope = self._open(graph, None, f" in {function_path(*key)}")
        scope.is_function = True
        parameters = self._read_parameters(function_path(*key))
        self._read_inputs(scope)
        self._scanner.expect("{")
        self._scanner.expect_word("opset")
        opsets = read_opsets(self._scanner)
        self._read_statements(scope)
        words = dict(zip(("domain", "name", "overload"), key, strict=True))
        proto.CopyFrom(completed(FunctionProto, scope.note, words))
        if not (proto.input or proto.output):
            proto.input.extend(value.name for value in graph.inputs)
            proto.output.extend("" if value is None else value.name for value in graph.outputs)
        proto.attribute.extend(found for found in parameters if isinstance(found, str))
        proto.attribute_proto.extend(found for found in parameters if not isinstance(found, str))
        proto.opset_import.extend(opsets)
        proto.value_info.extend(scope.declarations)
        graph.proto = proto
        return key, graph

    def _open(self, graph: Graph, outer: ParsedScope | None, path: str) -> ParsedScope:
        scope = self.scopes[path] = ParsedScope(graph, outer, path)
        if scope.depth > MAX_NESTING:
            raise self._scanner.problem(f"graphs are nested at most {MAX_NESTING} deep")
        return scope

    def _read_inputs(self, scope: ParsedScope) -> None:
        self._scanner.expect("(")
        scope.graph.inputs = self._scanner.items(lambda: self._read_input(scope), ")")

    def _read_input(self, scope: ParsedScope) -> Value:
        value = self._define(scope)
        scope.inputs.append(self._read_declared(value))
        return value

    def _read_parameters(self, path: str) -> list[str | AttributeProto]:
        """The attributes of a function, with defaults where they have some."""
        scanner = self._scanner
        if not scanner.accept("<"):
            return []

        def parameter() -> str | AttributeProto:
            name = scanner.word("the name of an attribute")
            return self._attributes.read(name, path) if scanner.accept("=") else name

        return scanner.items(parameter, ">")

    def _read_statements(self, scope: ParsedScope) -> None:
        """What is in a graph, up to its end."""
        scanner = self._scanner
        while not scanner.accept("}"):
            statement = self._statements.get(scanner.keyword())
            if statement is not None:
                scanner.expect(scanner.keyword())
                statement(scope)
            else:
                self._ops.read(scope)
        if not scope.has_return:
            raise scanner.problem(f"the graph '{scope.graph.name}' ends without 'return'")
        assemble(scope, self._blank)

    # -- values -------------------------------------------------------------------------------------

    def _define(self, scope: ParsedScope) -> Value:
        """A new value with its type."""
        start = self._scanner.position
        name = self.references.name()
        self._scanner.expect(":")
        return self._add(scope, name, read_type(self._scanner), start)

    def _add(self, scope: ParsedScope, name: str, type: ValueType, start: int) -> Value:
        if name in scope.values:
            raise self._scanner.problem(f"{name} is defined a second time", start)
        return scope.add(name, self.references.bare(name), type)

    def _read_value(self, scope: ParsedScope) -> None:
        self._define(scope)

    def _read_capture(self, scope: ParsedScope) -> None:
        scanner, start = self._scanner, self._scanner.position
        name = self.references.name()
        scanner.expect(":")
        type = read_type(scanner)
        outside = scope.find_outside(self.references.name() if scanner.accept("=") else name)
        if outside is None:
            raise scanner.problem(f"nothing around this graph is named like what {name} captures", start)
        if name in scope.values:
            raise scanner.problem(f"{name} is defined a second time", start)
        scope.stand_in(name, outside).type = type

    def _read_constant(self, scope: ParsedScope) -> None:
        value, is_sparse = self._constant(scope)
        if not is_sparse:
            scope.initializers.append(value)

    def _read_new_constant(self, scope: ParsedScope) -> None:
        self._scanner.expect_word("const")
        self._constant(scope)

    def _constant(self, scope: ParsedScope) -> tuple[Value, bool]:
        """A constant, which may be the default of an input, and whether it is sparse."""
        scanner, start = self._scanner, self._scanner.position
        name = self.references.name()
        scanner.expect(":")
        type = read_type(scanner)
        value = scope.values.get(name)
        if value is None:
            value = self._add(scope, name, type, start)
        elif value.const is not None or not scope.graph.is_input(value) or value.type != type:
            raise scanner.problem(f"{name} is defined a second time", start)
        return value, self._read_data(scope, value, name + scope.path)

    def _read_data(self, scope: ParsedScope, value: Value, key: str) -> bool:
        scanner, model = self._scanner, self._model
        type, given = value.type, scanner.accept("=")
        if given and scanner.accept_word("sparse"):
            start = scanner.position
            sparse = self._attributes.sparse(key)
            if sparse.values.name != value.name:
                raise scanner.problem(
                    f"the values of the sparse constant are not named '{value.name}'", start
                )
            scope.sparse.append(sparse)
            value.const = densified(sparse, model.base_dir)
            return True
        if given and not self.tensors.is_next():
            type = read_type(scanner)
        tensor = self.tensors.read(type, key)
        if not tensor.name:
            tensor.name = value.name
        value.const = TensorRef(tensor, model.base_dir)
        return False

    def _read_declared(self, value: Value) -> ValueInfoProto:
        """What the model declares of a value, if that is not its type."""
        info = declare(value)
        if self._scanner.accept_word("as"):
            self._read_declared_type(info)
        return info

    def _read_declared_type(self, info: ValueInfoProto) -> None:
        info.ClearField("type")
        type = read_declared(self._scanner)
        if type is not None:
            info.type.CopyFrom(type)

    # -- behind the ops -----------------------------------------------------------------------------

    def _read_return(self, scope: ParsedScope) -> None:
        scanner = self._scanner
        if scope.has_return:
            raise scanner.problem(f"the graph '{scope.graph.name}' has a second 'return'")
        scope.has_return = True
        outputs: list[Value | None] = []
        while scanner.sees("%") or scanner.sees("_"):
            outputs.append(self._read_output(scope))
            if not scanner.accept(","):
                break
        scope.graph.outputs = outputs

    def _read_output(self, scope: ParsedScope) -> Value | None:
        if self._scanner.accept("_"):
            return None
        value = self.references.value(scope)
        scope.outputs.append(self._read_declared(value))
        return value

    def _read_declarations(self, scope: ParsedScope) -> None:
        scanner, places = self._scanner, _places(scope)

        def declarations() -> list[ValueInfoProto]:
            if scanner.sees('"'):
                info = ValueInfoProto(name=scanner.string("a name"))
                scanner.expect_word("as")
                self._read_declared_type(info)
                return [info]
            values = self._read_run(scope, places)
            return [*map(declare, values[:-1]), self._read_declared(values[-1])]

        scope.declarations += chain.from_iterable(scanner.series(declarations))

    def _read_later(self, scope: ParsedScope) -> None:
        scanner, start, places = self._scanner, self._scanner.position, _places(scope)
        scope.later += chain.from_iterable(scanner.series(lambda: self._read_run(scope, places)))
        if len(set(scope.later)) != len(scope.later):
            raise scanner.problem("a value is named twice", start)

    def _read_run(self, scope: ParsedScope, places: dict[Value, int]) -> list[Value]:
        """A value, or all from one to another in the order of the text."""
        scanner, start = self._scanner, self._scanner.position
        first = self._read_own(scope)
        if not accept_to(scanner):
            return [first]
        run = scope.order[places[first] : places[self._read_own(scope)] + 1]
        self._listed += len(run)
        if not run:
            raise scanner.problem("this is no run of values", start)
        if self._listed > scanner.length:  # a short text must not stand for very much memory
            raise scanner.problem("the lists of values are longer than the text", start)
        return run

    def _read_own(self, scope: ParsedScope) -> Value:
        start = self._scanner.position
        return self.references.own_value(scope, self.references.name(), start)

    def _read_note(self, scope: ParsedScope) -> None:
        """What a proto carries besides: that of the graph, of a declaration, or of an op."""
        scanner, start, word = self._scanner, self._scanner.position, self._scanner.keyword()
        if word in _KINDS:
            scanner.expect(word)
            scanner.expect(":")
            kind, fields = _KINDS[word]
            if kind is not (FunctionProto if scope.is_function else GraphProto):
                raise scanner.problem(f"this is no {word}", start)
            scope.note = read_note(scanner, kind, fields)
        elif word in DECLARED:
            scanner.expect(word)
            self._read_declaration_note(scope, word)
        else:
            places = scanner.series(lambda: self._read_op_place(scope))
            scanner.expect(":")
            scope.op_notes.update(dict.fromkeys(places, read_note(scanner, NodeProto, said.NODE)))

    def _read_op_place(self, scope: ParsedScope) -> int:
        start = self._scanner.position
        place = self.references.op_place(scope, self.references.op_name(), start)
        if place in scope.op_notes or scope.ops[place].made:
            raise self._scanner.problem("there is nothing to say about this op", start)
        return place

    def _read_declaration_note(self, scope: ParsedScope, word: str) -> None:
        scanner, start = self._scanner, self._scanner.position
        name = scanner.string("a name") if scanner.sees('"') else self._read_own(scope).name
        infos = scope.declared(word).get(name)
        if not infos:
            raise scanner.problem(f"there is no {word} '{name}'", start)
        scanner.expect(":")
        note = read_note(scanner, ValueInfoProto, said.DECLARATION)
        for info in infos:
            info.MergeFrom(note.more)


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


def _places(scope: ParsedScope) -> dict[Value, int]:
    return {value: place for place, value in enumerate(scope.order)}
