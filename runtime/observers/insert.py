"""Adds ops to a model that summarize its tensors, those inside the bodies of If, Loop and Scan included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from qc.ir.errors import UsageError
from qc.ir.executor import Observation
from qc.ir.onnx.protos import nested_graphs, walk_graphs

from ..native.library import QC_DOMAIN
from ..protos.names import tensor_names
from ..protos.parts import needed_part
from ..statistics.tensor import BINS
from .moments import MomentOutputs, moment_nodes

_PREFIX = "qc.observe."  # of the names of all nodes and values that are added
_PACKED_AT_ONCE = 64


class RangeOutputs(NamedTuple):
    """Names of the graph outputs that hold ranges and counts (see the op ``qc::Observe``)."""

    minimum: str
    maximum: str
    finite: str
    nonfinite: str


@dataclass(frozen=True)
class ObserverOutputs:
    """Where a model made by :func:`add_observers` leaves what it saw.

    A tensor of a body that did not run has an empty summary: the count 0, and a histogram and moments of
    shape ``(1,)``.

    Attributes:
        tensors: the tensors observed as a whole. Their statistics are packed, one element each in this order,
            since fetching hundreds of single numbers would cost more than computing them.
        packed: the outputs with the packed statistics, each of shape ``(len(tensors),)``.
        channels: the outputs of tensors observed channel by channel.
        histograms: the output with the histogram, of the tensors that have one: int64, of shape ``(2, n)``,
            the used bins and their counts; or from inside of bodies, where histograms are merged by adding,
            ``(65536,)``, the count of every bin.
        moments: the outputs with sums and products, of the tensors that have them.
    """

    tensors: tuple[str, ...]
    packed: RangeOutputs
    channels: dict[str, RangeOutputs]
    histograms: dict[str, str]
    moments: dict[str, MomentOutputs]

    def names(self) -> list[str]:
        """All outputs."""
        return [slot.name for slot in self.slots()]

    def slots(self) -> Iterator[Slot]:
        """All outputs, with what is neutral for each."""
        for name, kind in zip(self.packed, _RANGE_KINDS, strict=True) if self.tensors else ():
            yield Slot(name, kind, len(self.tensors))
        for ranges in self.channels.values():
            yield from (Slot(name, kind, 1) for name, kind in zip(ranges, _RANGE_KINDS, strict=True))
        yield from (Slot(name, _COUNT, 1) for name in self.histograms.values())
        yield from (Slot(name, _SUM, 1) for names in self.moments.values() for name in names)

    def outside(self) -> ObserverOutputs:
        """The same summaries as outputs of the node around the body."""
        return ObserverOutputs(
            self.tensors,
            RangeOutputs(*map(_outside, self.packed)),
            {tensor: RangeOutputs(*map(_outside, ranges)) for tensor, ranges in self.channels.items()},
            {tensor: _outside(name) for tensor, name in self.histograms.items()},
            {tensor: MomentOutputs(*map(_outside, names)) for tensor, names in self.moments.items()},
        )


class Kind(NamedTuple):
    """How numbers of one kind are merged: the ONNX op, and the number that changes nothing."""

    op_type: str
    neutral: np.ndarray

    @property
    def elem_type(self) -> int:
        """The ``TensorProto.DataType`` of the numbers."""
        return int(helper.np_dtype_to_tensor_dtype(self.neutral.dtype))


_COUNT = Kind("Add", np.zeros((), np.int64))
_SUM = Kind("Add", np.zeros((), np.float64))
_RANGE_KINDS = (
    Kind("Min", np.array(np.inf, np.float32)),
    Kind("Max", np.array(-np.inf, np.float32)),
    _COUNT,
    _COUNT,
)


class Slot(NamedTuple):
    """One output with summaries.

    ``size`` neutral numbers stand for a summary of nothing. Where the number of channels or bins is not known
    or is large that is a single one, since merging broadcasts it.
    """

    name: str
    kind: Kind
    size: int

    def nothing(self, size: int | None = None) -> np.ndarray:
        """The neutral numbers."""
        return np.full(size or self.size, self.kind.neutral)

    def info(self, name: str, size: int | None = None) -> ValueInfoProto:
        """The declaration of a value of this type under another name; without ``size`` its shape may vary."""
        info = ValueInfoProto(name=name)
        info.type.tensor_type.elem_type = self.kind.elem_type
        if size is not None:
            info.type.tensor_type.shape.dim.add(dim_value=size)
        return info


def add_observers(
    model: ModelProto, requests: Mapping[str, Observation]
) -> tuple[ModelProto, ObserverOutputs]:
    """A model whose only outputs are statistics of tensors of ``model``.

    Nodes and initializers that no requested tensor needs are left out, so that calibration computes only
    what it observes, and large weights that are not needed are never copied. ``model`` is not changed.

    A body gives its summaries back as further outputs. Those of an If are empty in the branch that was not
    taken, and a Loop or Scan merges them from one iteration to the next, so that memory does not grow.

    Args:
        requests: what to collect, by the name of an input, initializer or output of a node in any graph.

    Returns:
        The new model, and where to find the statistics of each tensor.

    Raises:
        UsageError: no graph or several graphs have such a tensor; it is inside the body of an op other than
            If, Loop and Scan; or channels are asked for inside a Scan.
    """
    result = needed_part(model, requests)
    observers = _Observers(requests, _unused_prefix(model.graph))
    outputs = observers.add(result.graph, is_body=False)
    for name in outputs.names():
        result.graph.output.add(name=name)
    for graph in walk_graphs(result.graph):
        list_early(graph)
    if all(entry.domain != QC_DOMAIN for entry in result.opset_import):
        result.opset_import.append(helper.make_opsetid(QC_DOMAIN, 1))
    return result, outputs


class _Observers:
    """Adds observers to the graphs of a model, from the inside out."""

    def __init__(self, requests: Mapping[str, Observation], prefix: str) -> None:
        self._requests = requests
        self._prefix = prefix
        self._count = 0
        self._neutral: dict[tuple[int, str, int, int], str] = {}

    def add(self, graph: GraphProto, is_body: bool) -> ObserverOutputs:
        """Adds the observers of one graph and of those inside it; the graph gets no outputs yet."""
        parts = [part for node in graph.node for part in self._add_inside(graph, node)]
        own = [name for name in dict.fromkeys(tensor_names(graph)) if name in self._requests]
        ranges = {name: _range_outputs(self._next_stem()) for name in own}
        histograms = {
            name: f"{ranges[name].minimum}.histogram" for name in own if self._requests[name].histogram
        }
        nodes = [
            _observer(name, self._requests[name], ranges[name], histograms.get(name), sparse=not is_body)
            for name in own
        ]
        moments = {
            name: MomentOutputs(f"{ranges[name].minimum}.sums", f"{ranges[name].minimum}.products")
            for name in own
            if self._requests[name].moments or self._requests[name].gram
        }
        for name, outputs in moments.items():
            nodes += moment_nodes(name, self._requests[name], outputs)
        graph.node.extend(nodes)
        whole = [name for name in own if self._requests[name].axis is None]
        tensors = (*whole, *(name for part in parts for name in part.tensors))
        packs = [ranges[name] for name in whole] + [part.packed for part in parts if part.tensors]
        packed = self._pack(graph, packs)
        channels = {name: ranges[name] for name in own if self._requests[name].axis is not None}
        for part in parts:
            channels |= part.channels
            histograms |= part.histograms
            moments |= part.moments
        return ObserverOutputs(tensors, packed, channels, histograms, moments)

    def _pack(self, graph: GraphProto, parts: Sequence[RangeOutputs]) -> RangeOutputs:
        """Joins the numbers of some tensors to one output of each kind, in steps of a few at a time.

        ONNX Runtime plans the memory in a time that grows with the square of the results that wait.
        """
        packed = _range_outputs(self._next_stem())
        while len(parts) > _PACKED_AT_ONCE:
            chunks = [parts[i : i + _PACKED_AT_ONCE] for i in range(0, len(parts), _PACKED_AT_ONCE)]
            parts = [self._pack(graph, chunk) for chunk in chunks]
        if parts:
            graph.node.extend(_packers(parts, packed))
        return packed

    def _add_inside(self, graph: GraphProto, node: NodeProto) -> list[ObserverOutputs]:
        """Observes the bodies of a node and makes the summaries outputs of the node."""
        inside = [(body, self.add(body, is_body=True)) for body in nested_graphs(node)]
        inside = [(body, outputs) for body, outputs in inside if outputs.names()]
        if not inside:
            return []
        if node.domain in ("", "ai.onnx") and node.op_type == "If":
            _give_back(node, inside)
        elif node.domain in ("", "ai.onnx") and node.op_type in ("Loop", "Scan"):
            for body, outputs in inside:
                self._carry(graph, node, body, outputs)
        else:
            tensor = next(iter((*inside[0][1].tensors, *inside[0][1].channels)))
            raise UsageError(
                f"'{tensor}' cannot be observed: it is inside the body of a {node.op_type}, "
                "which does not bring statistics out"
            )
        return [outputs.outside() for _, outputs in inside]

    def _carry(self, graph: GraphProto, node: NodeProto, body: GraphProto, outputs: ObserverOutputs) -> None:
        """Lets a Loop or Scan carry summaries from one iteration to the next, and give back the last one."""
        is_scan = node.op_type == "Scan"
        if is_scan and outputs.channels:
            tensor = next(iter(outputs.channels))
            raise UsageError(f"'{tensor}' is inside a Scan, where tensors can only be observed as a whole")
        first = 0 if is_scan else 2  # a Loop reads a trip count and a condition before its states
        scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0) if is_scan else 0
        states = len(body.input) - first - scanned
        histograms = frozenset(outputs.histograms.values())
        node.input.extend([""] * (first - len(node.input)))
        node.output.extend([""] * (states - len(node.output)))
        for index, slot in enumerate(outputs.slots(), states):
            # A Scan wants its states to have a shape and to keep it.
            size = BINS if is_scan and slot.name in histograms else slot.size
            declared = size if is_scan else None
            before, after = f"{slot.name}.before", f"{slot.name}.after"
            body.node.append(helper.make_node(slot.kind.op_type, [before, slot.name], [after], name=after))
            node.input.insert(first + index, self._nothing(graph, slot, size))
            body.input.insert(first + index, slot.info(before, declared))
            body.output.insert(index + (0 if is_scan else 1), slot.info(after, declared))
            node.output.insert(index, _outside(slot.name))

    def _nothing(self, graph: GraphProto, slot: Slot, size: int) -> str:
        """An initializer of ``graph`` with neutral numbers; equal ones are shared."""
        key = (id(graph), slot.kind.op_type, slot.kind.elem_type, size)
        if key not in self._neutral:
            self._neutral[key] = f"{self._next_stem()}.nothing"
            graph.initializer.append(numpy_helper.from_array(slot.nothing(size), self._neutral[key]))
        return self._neutral[key]

    def _next_stem(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count - 1}"


def _give_back(node: NodeProto, inside: Sequence[tuple[GraphProto, ObserverOutputs]]) -> None:
    """Makes the summaries of each branch outputs of an If; the other branches give empty ones."""
    for branch, outputs in inside:
        for slot in outputs.slots():
            node.output.append(_outside(slot.name))
            for body in nested_graphs(node):
                name = slot.name
                if body is not branch:
                    name = f"{slot.name}.nothing"
                    tensor = numpy_helper.from_array(slot.nothing())
                    body.node.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
                body.output.append(slot.info(name))


def list_early(graph: GraphProto) -> None:
    """Lists each node that :func:`add_observers` added directly behind the last of those that it reads.

    Run in this order, an observer sees its tensor while that is in the cache, and the tensor's memory is free
    again soon. ONNX Runtime keeps to the order if it is asked to, see :func:`qc.runtime.open_session`. Apart
    from that, it sorts the nodes several times, by their places, and slowly where many late ones are ready.
    """
    places: dict[str, int] = {}
    order: list[tuple[int, NodeProto]] = []
    for index, node in enumerate(graph.node):
        added = node.name.startswith(_PREFIX)
        place = max((places.get(name, -1) for name in node.input), default=-1) if added else index
        places.update(dict.fromkeys(node.output, place))
        order.append((place, node))
    nodes = [node for _, node in sorted(order, key=itemgetter(0))]
    del graph.node[:]
    graph.node.extend(nodes)


def _range_outputs(stem: str) -> RangeOutputs:
    return RangeOutputs(f"{stem}.minimum", f"{stem}.maximum", f"{stem}.count", f"{stem}.nonfinite")


def _outside(name: str) -> str:
    """The name of a summary outside the body that makes it."""
    return f"{name}.outside"


def _observer(
    name: str, request: Observation, outputs: RangeOutputs, histogram: str | None, sparse: bool
) -> NodeProto:
    return helper.make_node(
        "Observe",
        [name],
        [*outputs, *([histogram] if histogram is not None else [])],
        name=f"{outputs.minimum}.observer",
        domain=QC_DOMAIN,
        axis=-1 if request.axis is None else request.axis,
        histogram=int(histogram is not None),
        sparse=int(sparse),
    )


def _packers(parts: Sequence[RangeOutputs], packed: RangeOutputs) -> list[NodeProto]:
    """One Concat for each kind of number."""
    return [
        helper.make_node("Concat", list(names), [result], name=f"{result}.packer", axis=0)
        for names, result in zip(zip(*parts, strict=True), packed, strict=True)
    ]


def _unused_prefix(graph: GraphProto) -> str:
    """A beginning that no name in the graph or its subgraphs has."""
    taken = {name for body in walk_graphs(graph) for name in tensor_names(body)}
    prefix = _PREFIX
    while any(name.startswith(prefix) for name in taken):
        prefix += "."
    return prefix
