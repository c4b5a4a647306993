"""Reads one op: its results, inputs, name, attributes, and for one that a pass made, where it came from."""

from __future__ import annotations

import re
from collections.abc import Callable

from onnx import AttributeProto, GraphProto

from ..graph import Graph, Op, Value, ValueType
from . import said
from .attributes import AttributeReader
from .carried import read_notes_in_place
from .parsed_scope import ParsedOp, ParsedScope
from .references import References
from .scanner import Scanner
from .scope import graph_word
from .value_types import read_type

_PLACE = re.compile(r"-?\d{1,18}(?:\.\d{1,18})*")

Nested = Callable[[Graph, ParsedScope, str, GraphProto], ParsedScope]


class OpReader:
    """Reads the ops of graphs.

    Args:
        nested: reads a nested graph, into a graph and a proto.
    """

    def __init__(
        self, scanner: Scanner, references: References, attributes: AttributeReader, nested: Nested
    ) -> None:
        self._scanner = scanner
        self._references = references
        self._attributes = attributes
        self._nested = nested

    def read(self, scope: ParsedScope) -> None:
        """The op that comes next, into ``scope``."""
        scanner, start = self._scanner, self._scanner.position
        announced = self._read_results()
        scanner.expect("=")
        domain, op_type, overload = self._read_kind()
        scanner.expect("(")
        inputs = scanner.items(lambda: self._read_input(scope), ")")
        op = Op(scope.graph, 0, op_type, domain, scanner.name("a name") if scanner.accept("@") else "")
        op.overload, op.num_inputs, op.num_outputs = overload, len(inputs), len(announced)
        results = [self._announce(scope, result) for result in announced]
        owner = next((result[0] for result in announced if result is not None), f"op {len(scope.ops)}")
        attributes, captures = self._read_attributes(scope, op, owner) if scanner.accept("{") else ([], [])
        for result, value in zip(announced, results, strict=True):
            if result is not None and value is not None and not scope.register(result[0], value):
                raise scanner.problem(f"{result[0]} is defined a second time", start)
        made = self._read_history(scope, op)
        scope.add_op(ParsedOp(op, domain, inputs, results, attributes, captures, made))

    def _read_results(self) -> list[tuple[str, ValueType] | None]:
        """Names and types; the names are not known before the end of the op."""
        scanner = self._scanner
        if scanner.accept("("):
            scanner.expect(")")
            return []
        return scanner.series(self._read_result)

    def _read_result(self) -> tuple[str, ValueType] | None:
        if self._scanner.accept("_"):
            return None
        name = self._references.name()
        self._scanner.expect(":")
        return name, read_type(self._scanner)

    def _announce(self, scope: ParsedScope, result: tuple[str, ValueType] | None) -> Value | None:
        if result is None:
            return None
        name, type = result
        return scope.announce(self._references.bare(name), type)

    def _read_kind(self) -> tuple[str, str, str]:
        scanner, domain = self._scanner, ""
        op_type = scanner.word("the type of an op")
        if scanner.accept("::"):
            domain, op_type = op_type, scanner.word("the type of an op")
        return domain, op_type, scanner.word("an overload") if scanner.accept("#") else ""

    def _read_input(self, scope: ParsedScope) -> Value | None:
        return None if self._scanner.accept("_") else self._references.value(scope)

    def _read_history(self, scope: ParsedScope, op: Op) -> bool:
        """Whether a pass made the op; why, and in whose place."""
        scanner = self._scanner
        made = scanner.accept_word("by")
        reasons = []
        while made and scanner.sees('"'):
            reasons.append(scanner.string("a reason"))
        op.provenance = tuple(reasons)
        op.position = (scope.next_place,)
        if scanner.accept_word("at"):
            op.position = tuple(map(int, scanner.take(_PLACE, "a place, such as 3.1").split(".")))
        scope.next_place = op.position[0] + 1
        return made

    # -- attributes ---------------------------------------------------------------------------------

    def _read_attributes(
        self, scope: ParsedScope, op: Op, owner: str
    ) -> tuple[list[AttributeProto], list[Value]]:
        """The attributes in order, graphs without contents, and what captures something in these."""
        scanner, start = self._scanner, self._scanner.position
        subgraphs: dict[str, ParsedScope] = {}
        found = scanner.items(lambda: self._read_attribute(scope, op, owner, subgraphs), "}")
        if len({attribute.name for attribute in found}) != len(found):
            raise scanner.problem("an attribute is given twice", start)
        if subgraphs:
            op.subgraphs = {key: inner.graph for key, inner in subgraphs.items()}
        inside = (value for inner in subgraphs.values() for value in inner.order)
        return found, [value for value in inside if value.captured is not None]

    def _read_attribute(
        self, scope: ParsedScope, op: Op, owner: str, subgraphs: dict[str, ParsedScope]
    ) -> AttributeProto:
        scanner = self._scanner
        name = scanner.word("the name of an attribute")
        scanner.expect("=")
        word = scanner.keyword()
        if word not in ("graph", "graphs"):
            return self._attributes.read(name, owner + scope.path)
        attribute = AttributeProto(name=name)
        if word == "graph":
            attribute.type = AttributeProto.GRAPH
            subgraphs[name] = self._read_graph(scope, op, owner, name)
        else:
            attribute.type = AttributeProto.GRAPHS
            self._read_graphs(scope, op, owner, attribute, subgraphs)
        read_notes_in_place(scanner, attribute, said.GRAPH_ATTRIBUTE)
        return attribute

    def _read_graphs(
        self,
        scope: ParsedScope,
        op: Op,
        owner: str,
        attribute: AttributeProto,
        subgraphs: dict[str, ParsedScope],
    ) -> None:
        scanner = self._scanner
        scanner.expect("graphs[")
        while not scanner.accept("]"):
            index = len(attribute.graphs)
            if index:
                scanner.expect(",")
            key = f"{attribute.name}:{index}"
            attribute.graphs.add()
            subgraphs[key] = self._read_graph(scope, op, owner, key)

    def _read_graph(self, scope: ParsedScope, op: Op, owner: str, key: str) -> ParsedScope:
        graph = Graph(scope.graph.model, "", parent=op)
        path = f" in {graph_word(key)} of {owner}{scope.path}"
        return self._nested(graph, scope, path, GraphProto())
