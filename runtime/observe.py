"""Cuts a model down to what some of its tensors need, and adds ops that summarize those tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

from qc.ir.errors import UsageError, nearest
from qc.ir.executor import Observation

from .library import QC_DOMAIN
from .protos import copy_fields


class RangeOutputs(NamedTuple):
    """Names of the graph outputs that hold ranges and counts (see the op ``qc::Observe``)."""

    minimum: str
    maximum: str
    finite: str
    nonfinite: str


@dataclass(frozen=True)
class ObserverOutputs:
    """Where a model made by :func:`add_observers` leaves what it saw.

    Attributes:
        tensors: the tensors observed as a whole. Their statistics are packed, one element each in this order,
            since fetching hundreds of single numbers would cost more than computing them.
        packed: the outputs with the packed statistics, each of shape ``(len(tensors),)``.
        channels: the outputs of tensors observed channel by channel.
        histograms: the output with the histogram, of the tensors that have one.
    """

    tensors: tuple[str, ...]
    packed: RangeOutputs
    channels: dict[str, RangeOutputs]
    histograms: dict[str, str]

    def names(self) -> list[str]:
        """All outputs."""
        groups = ([self.packed] if self.tensors else []) + list(self.channels.values())
        return [name for group in groups for name in group] + list(self.histograms.values())


def add_observers(
    model: ModelProto, requests: Mapping[str, Observation]
) -> tuple[ModelProto, ObserverOutputs]:
    """A model whose only outputs are statistics of tensors of the main graph of ``model``.

    Nodes and initializers that no requested tensor needs are left out, so that calibration computes only
    what it observes, and large weights that are not needed are never copied. ``model`` is not changed.

    Args:
        requests: what to collect, by the name of a graph input, initializer or output of a node.

    Returns:
        The new model, and where to find the statistics of each tensor.

    Raises:
        UsageError: the main graph has no such tensor.
    """
    ordered = _in_graph_order(model.graph, requests)
    result = _needed_part(model, ordered)
    prefix = _unused_prefix(model.graph)
    ranges = {name: _range_outputs(f"{prefix}{number}") for number, name in enumerate(ordered)}
    outputs = ObserverOutputs(
        tensors=tuple(name for name in ordered if requests[name].axis is None),
        packed=_range_outputs(f"{prefix}all"),
        channels={name: ranges[name] for name in ordered if requests[name].axis is not None},
        histograms={
            name: f"{ranges[name].minimum}.histogram" for name in ordered if requests[name].histogram
        },
    )
    nodes = [_observer(name, requests[name], ranges[name], outputs.histograms.get(name)) for name in ordered]
    if outputs.tensors:
        nodes += _packers(outputs, ranges)
    result.graph.node.extend(observers_backwards(nodes))
    for name in outputs.names():
        result.graph.output.add(name=name)
    if all(entry.domain != QC_DOMAIN for entry in result.opset_import):
        result.opset_import.append(helper.make_opsetid(QC_DOMAIN, 1))
    return result, outputs


def observers_backwards(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Topologically ordered nodes in the order that lets ONNX Runtime run each observer early.

    ONNX Runtime sorts nodes depth first, from the last leaf to the first. Observers are leaves, or next to
    them: listed backwards and last, each runs as soon as its tensor is there, while it is in the cache, and
    the tensor's memory is free again. Otherwise all of them run at the end, when all tensors are alive.
    """
    observers = [node for node in nodes if node.domain == QC_DOMAIN and node.op_type == "Observe"]
    statistics = {name for node in observers for name in node.output}
    packers = [node for node in nodes if not statistics.isdisjoint(node.input)]
    last = {id(node) for node in (*observers, *packers)}
    return [node for node in nodes if id(node) not in last] + observers[::-1] + packers


def _range_outputs(stem: str) -> RangeOutputs:
    return RangeOutputs(f"{stem}.minimum", f"{stem}.maximum", f"{stem}.count", f"{stem}.nonfinite")


def _observer(name: str, request: Observation, outputs: RangeOutputs, histogram: str | None) -> NodeProto:
    return helper.make_node(
        "Observe",
        [name],
        [*outputs, *([histogram] if histogram is not None else [])],
        name=f"{outputs.minimum}.observer",
        domain=QC_DOMAIN,
        axis=-1 if request.axis is None else request.axis,
        histogram=int(histogram is not None),
    )


def _packers(outputs: ObserverOutputs, ranges: Mapping[str, RangeOutputs]) -> list[NodeProto]:
    """One Concat for each kind of number."""
    return [
        helper.make_node(
            "Concat",
            [ranges[name][kind] for name in outputs.tensors],
            [packed],
            name=f"{packed}.packer",
            axis=0,
        )
        for kind, packed in enumerate(outputs.packed)
    ]


def expose_tensors(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """A model whose outputs are the named tensors of the main graph, cut down as by :func:`add_observers`.

    The outputs have no type; ONNX Runtime infers it.

    Raises:
        UsageError: the main graph has no such tensor.
    """
    result = _needed_part(model, _in_graph_order(model.graph, names))
    for name in dict.fromkeys(names):
        result.graph.output.add(name=name)
    return result


def walk_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs nested in it, each before those inside it."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            pending.extend(_subgraphs(node))


def _subgraphs(node: NodeProto) -> list[GraphProto]:
    graphs = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            graphs.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            graphs.extend(attribute.graphs)
    return graphs


def _in_graph_order(graph: GraphProto, names: Iterable[str]) -> list[str]:
    position: dict[str, int] = {}
    for name in _tensor_names(graph):
        position.setdefault(name, len(position))
    for name in names:
        if name not in position:
            raise UsageError(
                f"the main graph has no tensor '{name}'{nearest(name, list(position))}; "
                "tensors inside a branch or loop body cannot be observed from outside"
            )
    return sorted(dict.fromkeys(names), key=position.__getitem__)


def _tensor_names(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _needed_part(model: ModelProto, targets: Sequence[str]) -> ModelProto:
    """A copy of ``model`` without outputs, and without what the targets do not need."""
    graph = model.graph
    nodes, tensors = _needed(graph, targets)
    result = ModelProto()
    copy_fields(model, result, leave_out=("graph", "training_info"))
    part = result.graph
    part.name = graph.name
    part.node.extend(nodes)
    stored = {tensor.name for tensor in graph.initializer}
    part.initializer.extend(tensor for tensor in graph.initializer if tensor.name in tensors)
    part.sparse_initializer.extend(s for s in graph.sparse_initializer if s.values.name in tensors)
    # An input with a default stays or goes with its default: alone it would have to be fed.
    part.input.extend(value for value in graph.input if value.name in tensors or value.name not in stored)
    part.value_info.extend(value for value in (*graph.value_info, *graph.output) if value.name in tensors)
    return result


def _needed(graph: GraphProto, targets: Sequence[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that the targets depend on, in the order of the graph, and every tensor among them."""
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    tensors, pending, used = set(targets), list(targets), set()
    while pending:
        index = producer.get(pending.pop())
        if index is None or index in used:
            continue
        used.add(index)
        read = _names_read(graph.node[index])
        pending.extend(read - tensors)
        tensors |= read
        tensors.update(graph.node[index].output)
    tensors.discard("")
    return [graph.node[index] for index in sorted(used)], tensors


def _names_read(node: NodeProto) -> set[str]:
    """Inputs of a node and every name used inside its subgraphs, of which some are captured from outside."""
    names = set(node.input)
    for body in (nested for graph in _subgraphs(node) for nested in walk_graphs(graph)):
        names.update(name for inner in body.node for name in inner.input)
        names.update(value.name for value in body.output)
    return names


def _unused_prefix(graph: GraphProto) -> str:
    """A beginning that no name in the graph or its subgraphs has."""
    taken = {name for body in walk_graphs(graph) for name in _tensor_names(body)}
    prefix = "qc.observe."
    while any(name.startswith(prefix) for name in taken):
        prefix += "."
    return prefix
