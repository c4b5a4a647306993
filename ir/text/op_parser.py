"""Reads one op: its results, inputs, name, attributes, and for one that a pass made, where it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from onnx import AttributeProto, GraphProto, NodeProto

from ..graph import Graph, Op, Value, ValueType
from ..onnx.protos import GRAPH_TYPES
from .attributes import AttributeReader
from .graph_printer import names_of
from .parsed_scope import ParsedOp, ParsedScope
from .references import References, bare_name
from .residue import GRAPH_ATTRIBUTE, NODE, read_residue
from .scanner import Scanner
from .scope import graph_word
from .value_types import read_type

_PLACE = re.compile(r"-?\d{1,18}(?:\.\d{1,18})*")

Nested = Callable[[Graph, ParsedScope, str, GraphProto], ParsedScope]


class OpReader:
    """Reads the ops of graphs.

    Args:
        blank: the text fields that nodes of this model have even if they are empty.
        nested: reads a nested graph, into a graph and a proto.
    """

    def __init__(
        self,
        scanner: Scanner,
        references: References,
        attributes: AttributeReader,
        blank: Collection[str],
        nested: Nested,
    ) -> None:
        self._scanner = scanner
        self._references = references
        self._attributes = attributes
        self._blank = blank
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
        if not self._read_history(scope, op):
            node = NodeProto(input=names_of(inputs), output=names_of(results), attribute=attributes)
            op.proto = self._completed(node, op, domain)
            attributes = list(node.attribute)
        if attributes:
            op.attributes = {a.name: a for a in attributes if a.type not in GRAPH_TYPES}
        scope.add_op(ParsedOp(op, inputs, results, captures))

    def _completed(self, node: NodeProto, op: Op, domain: str) -> NodeProto:
        """A node as it stands in the model, but without the contents of graphs among its attributes."""
        node.op_type = op.op_type
        for field in self._blank:
            setattr(node, field, "")
        if op.name:
            node.name = op.name
        if domain:
            node.domain = domain
        if op.overload:
            node.overload = op.overload
        read_residue(self._scanner, node, NODE)
        return node

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
        return None if result is None else scope.announce(bare_name(result[0]), result[1])

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
        is_new = scanner.accept_word("by")
        reasons = []
        while is_new and scanner.sees('"'):
            reasons.append(scanner.string("a reason"))
        op.provenance = tuple(reasons)
        op.position = (scope.next_place,)
        if scanner.accept_word("at"):
            op.position = tuple(map(int, scanner.take(_PLACE, "a place, such as 3.1").split(".")))
        scope.next_place = op.position[0] + 1
        return is_new

    # -- attributes ---------------------------------------------------------------------------------

    def _read_attributes(
        self, scope: ParsedScope, op: Op, owner: str
    ) -> tuple[list[AttributeProto], list[Value]]:
        """The attributes in order, graphs without contents, and what captures something in these."""
        scanner, start = self._scanner, self._scanner.position
        subgraphs: dict[str, ParsedScope] = {}

        def graph(key: str) -> None:
            inner = Graph(scope.graph.model, "", parent=op)
            path = f" in {graph_word(key)} of {owner}{scope.path}"
            subgraphs[key] = self._nested(inner, scope, path, GraphProto())

        found = scanner.items(lambda: self._read_attribute(owner + scope.path, graph), "}")
        if len({attribute.name for attribute in found}) != len(found):
            raise scanner.problem("an attribute is given twice", start)
        if subgraphs:
            op.subgraphs = {key: inner.graph for key, inner in subgraphs.items()}
        inside = (value for inner in subgraphs.values() for value in inner.order)
        return found, [value for value in inside if value.captured is not None]

    def _read_attribute(self, owner: str, graph: Callable[[str], None]) -> AttributeProto:
        """An attribute; ``graph`` reads a nested graph under a key."""
        scanner = self._scanner
        name = scanner.word("the name of an attribute")
        scanner.expect("=")
        word = scanner.keyword()
        if word == "graph":
            attribute = AttributeProto(name=name, type=AttributeProto.GRAPH)
            graph(name)
        elif word == "graphs":
            attribute = AttributeProto(name=name, type=AttributeProto.GRAPHS)
            scanner.expect("graphs[")
            while not scanner.accept("]"):
                if attribute.graphs:
                    scanner.expect(",")
                graph(f"{name}:{len(attribute.graphs)}")
                attribute.graphs.add()
        else:
            return self._attributes.read(name, owner)
        read_residue(scanner, attribute, GRAPH_ATTRIBUTE)
        return attribute
