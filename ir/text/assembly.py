"""Makes the graphs of the IR, and the protos that lowering starts from, of what was read."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from ..graph import Value, capture_port
from .attributes import GRAPH_TYPES
from .carried import completed
from .parsed_scope import ParsedOp, ParsedScope


def assemble(scope: ParsedScope, blank: frozenset[str]) -> None:
    """Fills the graph of a scope.

    Args:
        blank: the text fields that nodes have even if they are empty.
    """
    graph, later = scope.graph, set(scope.later)
    for value in (*(value for value in scope.order if value not in later), *scope.later):
        value.id = graph.model.new_id()
        graph._add_node(value)
        if value.captured is None:
            graph.model.claim_name(value.name)
    for index, parsed in enumerate(scope.ops):
        _connect(parsed)
        attributes: Iterable[AttributeProto] = parsed.attributes
        if not parsed.made:
            parsed.op.proto = _node(scope, parsed, index, blank)
            attributes = parsed.op.proto.attribute
        if parsed.attributes:
            parsed.op.attributes = {a.name: a for a in attributes if a.type not in GRAPH_TYPES}


def _connect(parsed: ParsedOp) -> None:
    op = parsed.op
    graph = op.graph
    op.id = graph.model.new_id()
    graph._add_node(op)
    if op.name:
        graph.model.claim_name(op.name)
    for port, value in enumerate(parsed.inputs):
        if value is not None:
            graph._connect(value, op, port)
    for port, value in enumerate(parsed.results):
        if value is not None:
            graph._connect(op, value, port)
    for inner in parsed.captures:
        assert inner.captured is not None
        graph._connect(inner.captured, op, capture_port(inner))


def _node(scope: ParsedScope, parsed: ParsedOp, index: int, blank: frozenset[str]) -> NodeProto:
    """The node as it stands in the model, but without the contents of graphs among its attributes."""
    op = parsed.op
    words = {"name": op.name, "domain": parsed.domain, "overload": op.overload, "doc_string": ""}
    node = completed(NodeProto, scope.op_notes.get(index), words, blank)
    node.op_type = op.op_type
    node.input.extend(_names(parsed.inputs))
    node.output.extend(_names(parsed.results))
    node.attribute.extend(parsed.attributes)
    return node


def fill_graph_proto(scope: ParsedScope, proto: GraphProto) -> None:
    """What lowering takes from the original graph: declarations, the order of constants, and its names."""
    proto.CopyFrom(completed(GraphProto, scope.note, {"name": scope.graph.name}))
    for parsed in scope.ops:
        proto.node.add(input=_names(parsed.inputs), output=_names(parsed.results))
    proto.initializer.extend(_outline(value) for value in scope.initializers)
    proto.sparse_initializer.extend(scope.sparse)
    proto.input.extend(scope.inputs)
    proto.output.extend(scope.outputs)
    proto.value_info.extend(scope.declarations)


def _names(values: list[Value | None]) -> list[str]:
    return [value.name if value is not None else "" for value in values]


def _outline(value: Value) -> TensorProto:
    """An initializer without data; where external ones lie is kept, so that nobody overwrites them."""
    assert value.const is not None
    tensor = value.const.proto
    outline = TensorProto(name=value.name, dims=tensor.dims, data_type=tensor.data_type)
    if value.const.is_external:
        outline.data_location = tensor.data_location
        outline.external_data.extend(tensor.external_data)
    return outline
