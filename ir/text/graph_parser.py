"""Reads one graph: its interface, constants and ops, and what it declares."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain

from onnx import FunctionProto, GraphProto, OperatorSetIdProto, ValueInfoProto

from ..graph import Graph, Value, ValueType
from ..model import FunctionKey, Model
from ..onnx.lift import MAX_NESTING, densified
from ..onnx.types import declare
from ..tensor_ref import TensorRef
from .attributes import AttributeReader
from .graph_printer import names_of
from .op_parser import OpReader
from .parsed_scope import ParsedScope, outline
from .references import References, bare_name
from .residue import FUNCTION, GRAPH, read_residue
from .runs import accept_to
from .scanner import Scanner
from .scope import function_path
from .storage import Sources
from .tensors import TensorReader
from .value_types import read_type
from .words import INTEGER


class GraphReader:
    """Reads the graphs of a model.

    Args:
        model: takes the graphs.
        blank: the text fields that nodes of this model have even if they are empty.

    Attributes:
        scopes: what was read, by how the text names it; an empty text for the main graph.
        references, tensors: read what the text names, and data.
    """

    def __init__(self, model: Model, scanner: Scanner, sources: Sources, blank: Collection[str]) -> None:
        self.scopes: dict[str, ParsedScope] = {}
        self._model = model
        self._scanner = scanner
        self.references = References(scanner)
        self.tensors = TensorReader(scanner, sources)
        self._attributes = AttributeReader(scanner, self.tensors)
        self._ops = OpReader(scanner, self.references, self._attributes, blank, self.graph)
        self._listed = 0  # values in runs so far
        self._statements: dict[str, Callable[[ParsedScope], None]] = {
            "value": self._read_value,
            "const": self._read_constant,
            "new": self._read_new_constant,
            "capture": self._read_capture,
            "return": self._read_return,
            "value_info": self._read_declarations,
            "later": self._read_later,
        }

    # -- graphs -------------------------------------------------------------------------------------

    def graph(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> ParsedScope:
        """A main graph or a nested one, into ``graph`` and ``proto``."""
        self._scanner.expect_word("graph")
        scope = self._open(graph, outer, path, proto)
        graph.name, graph.proto = self._scanner.word("the name of the graph"), proto
        if graph.name:
            proto.name = graph.name
        self._read_inputs(scope)
        read_residue(self._scanner, proto, GRAPH)
        self._read_statements(scope)
        return scope

    def function(self, proto: FunctionProto) -> tuple[FunctionKey, Graph]:
        """A local function, into ``proto``."""
        key = self.references.function_key()
        graph, path = Graph(self._model, key[1]), function_path(*key)
        scope = self._open(graph, None, f" in {path}", GraphProto())
        graph.proto = proto
        for field, text in zip(("domain", "name", "overload"), key, strict=True):
            if text:
                setattr(proto, field, text)
        if self._scanner.accept("<"):
            self._scanner.items(lambda: self._read_parameter(proto, path), ">")
        self._read_inputs(scope)
        read_residue(self._scanner, proto, FUNCTION)
        self._scanner.expect_word("opset")
        proto.opset_import.extend(read_opsets(self._scanner))
        self._read_statements(scope)
        if not (proto.input or proto.output):
            proto.input.extend(names_of(graph.inputs))
            proto.output.extend(names_of(graph.outputs))
        proto.value_info.extend(scope.proto.value_info)
        return key, graph

    def _open(self, graph: Graph, outer: ParsedScope | None, path: str, proto: GraphProto) -> ParsedScope:
        scope = self.scopes[path] = ParsedScope(graph, outer, path, proto)
        if scope.depth > MAX_NESTING:
            raise self._scanner.problem(f"graphs are nested at most {MAX_NESTING} deep")
        return scope

    def _read_inputs(self, scope: ParsedScope) -> None:
        self._scanner.expect("(")
        scope.graph.inputs = self._scanner.items(lambda: self._read_input(scope), ")")
        self._scanner.expect("{")

    def _read_input(self, scope: ParsedScope) -> Value:
        value = self._define(scope)
        scope.proto.input.append(self._read_declared(value))
        return value

    def _read_parameter(self, proto: FunctionProto, path: str) -> None:
        """An attribute of a function, with a default if it has one."""
        name = self._scanner.word("the name of an attribute")
        if self._scanner.accept("="):
            proto.attribute_proto.append(self._attributes.read(name, path))
        else:
            proto.attribute.append(name)

    def _read_statements(self, scope: ParsedScope) -> None:
        """What is in a graph, up to its end."""
        scanner = self._scanner
        while not scanner.accept("}"):
            word = scanner.keyword()
            statement = self._statements.get(word)
            if statement is not None:
                scanner.expect(word)
                statement(scope)
            else:
                self._ops.read(scope)
        if not scope.has_return:
            raise scanner.problem(f"the graph '{scope.graph.name}' ends without 'return'")
        scope.assemble()

    # -- values -------------------------------------------------------------------------------------

    def _define(self, scope: ParsedScope) -> Value:
        """A new value with its type."""
        name, type, start = self._read_typed()
        return self._add(scope, name, type, start)

    def _read_typed(self) -> tuple[str, ValueType, int]:
        """A name, a type, and where they begin."""
        start, name = self._scanner.position, self.references.name()
        self._scanner.expect(":")
        return name, read_type(self._scanner), start

    def _add(self, scope: ParsedScope, name: str, type: ValueType, start: int) -> Value:
        if name in scope.values:
            raise self._scanner.problem(f"{name} is defined a second time", start)
        return scope.add(name, bare_name(name), type)

    def _read_value(self, scope: ParsedScope) -> None:
        self._define(scope)

    def _read_capture(self, scope: ParsedScope) -> None:
        scanner = self._scanner
        name, type, start = self._read_typed()
        outside = scope.find_outside(self.references.name() if scanner.accept("=") else name)
        if outside is None:
            raise scanner.problem(f"nothing around this graph is named like what {name} captures", start)
        if name in scope.values:
            raise scanner.problem(f"{name} is defined a second time", start)
        scope.capture(name, outside).type = type

    def _read_new_constant(self, scope: ParsedScope) -> None:
        self._scanner.expect_word("const")
        self._read_constant(scope, is_new=True)

    def _read_constant(self, scope: ParsedScope, is_new: bool = False) -> None:
        """A constant, which may be the default of an input."""
        name, type, start = self._read_typed()
        value = scope.values.get(name)
        if value is None:
            value = self._add(scope, name, type, start)
        elif value.const is not None or not scope.graph.is_input(value) or value.type != type:
            raise self._scanner.problem(f"{name} is defined a second time", start)
        given = self._scanner.accept("=")
        if given and self._scanner.accept_word("sparse"):
            value.const = self._read_sparse(scope, value, name + scope.path)
            return
        if given and not self.tensors.is_next():
            type = read_type(self._scanner)
        tensor = self.tensors.read(type, name + scope.path)
        if not tensor.name:
            tensor.name = value.name
        value.const = TensorRef(tensor, self._model.base_dir)
        if not is_new:
            scope.proto.initializer.append(outline(value.name, tensor))

    def _read_sparse(self, scope: ParsedScope, value: Value, key: str) -> TensorRef:
        start = self._scanner.position
        sparse = self._attributes.sparse(key)
        if sparse.values.name != value.name:
            sentence = f"the values of the sparse constant are not named '{value.name}'"
            raise self._scanner.problem(sentence, start)
        scope.proto.sparse_initializer.append(sparse)
        return densified(sparse, self._model.base_dir)

    def _read_declared(self, value: Value) -> ValueInfoProto:
        """The declaration of a value."""
        info = declare(value)
        read_residue(self._scanner, info, {"name"})
        return info

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
        scope.proto.output.append(self._read_declared(value))
        return value

    def _read_declarations(self, scope: ParsedScope) -> None:
        scanner, places = self._scanner, _places(scope)

        def declarations() -> None:
            if scanner.keyword() == "raw":
                read_residue(scanner, scope.proto.value_info.add())
            else:
                scope.proto.value_info.extend(map(declare, self._read_run(scope, places)))

        scanner.series(declarations)

    def _read_later(self, scope: ParsedScope) -> None:
        scanner, start, places = self._scanner, self._scanner.position, _places(scope)
        scope.later += chain.from_iterable(scanner.series(lambda: self._read_run(scope, places)))
        if len(set(scope.later)) != len(scope.later):
            raise scanner.problem("a value is named twice", start)

    def _read_run(self, scope: ParsedScope, places: dict[Value, int]) -> list[Value]:
        """A value, or all from one to another in the order of the text."""
        scanner, references, start = self._scanner, self.references, self._scanner.position
        first = references.own_value(scope, references.mention())
        if not accept_to(scanner):
            return [first]
        last = references.own_value(scope, references.mention())
        run = scope.order[places[first] : places[last] + 1]
        self._listed += len(run)
        if not run:
            raise scanner.problem("this is no run of values", start)
        if self._listed > scanner.length:  # a short text must not stand for very much memory
            raise scanner.problem("the lists of values are longer than the text", start)
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


def _places(scope: ParsedScope) -> dict[Value, int]:
    return {value: place for place, value in enumerate(scope.order)}
