"""Adds ops to a model that summarize its tensors, those inside the bodies of If, Loop and Scan included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from qc.ir.errors import UsageError
from qc.ir.executor import Observation, Patches, Request
from qc.ir.onnx.protos import nested_graphs, walk_graphs

from ..native.library import QC_DOMAIN
from ..protos.names import tensor_names
from ..protos.parts import needed_part
from ..statistics.tensor import BINS

_PREFIX = "qc.observe."  # of the names of all nodes and values that are added
_PACKED_AT_ONCE = 64
_OTHER_FLOATS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})


class Field(NamedTuple):
    """How numbers of a summary are merged: the ONNX op, and the number that changes nothing."""

    op_type: str
    neutral: np.ndarray

    def nothing(self, size: int) -> np.ndarray:
        """So many neutral numbers."""
        return np.full(size, self.neutral)

    def info(self, name: str, size: int | None = None) -> ValueInfoProto:
        """The declaration of a value of this type; without ``size`` its shape may vary."""
        info = ValueInfoProto(name=name)
        info.type.tensor_type.elem_type = int(helper.np_dtype_to_tensor_dtype(self.neutral.dtype))
        if size is not None:
            info.type.tensor_type.shape.dim.add(dim_value=size)
        return info


_COUNT = Field("Add", np.zeros((), np.int64))
_SUM = Field("Add", np.zeros((), np.float64))
# In the order of the outputs of the ops qc::Observe and qc::ObserveMoments.
_RANGE = {
    "minimum": Field("Min", np.array(np.inf, np.float32)),
    "maximum": Field("Max", np.array(-np.inf, np.float32)),
    "count": _COUNT,
    "nonfinite": _COUNT,
}
_HISTOGRAM = {"histogram": _COUNT}
_MOMENTS = {"sums": _SUM, "products": _SUM, "positions": _COUNT}
_FIELDS = _RANGE | _HISTOGRAM | _MOMENTS


@dataclass(frozen=True)
class Group:
    """Where a model made by :func:`add_observers` leaves summaries of the same fields.

    Whole tensors share a group with one element for each, since fetching hundreds of single numbers would
    cost more than computing them. Channels, features and histograms have a group for each request. A
    histogram is of shape ``(2, n)``, the used bins and their counts; or from inside of bodies, where
    histograms are merged by adding, ``(65536,)``, the count of every bin. A body that did not run leaves
    neutral numbers, one for each request.

    Attributes:
        requests: what was asked for.
        names: the output with the numbers of each field.
    """

    requests: tuple[Request, ...]
    names: dict[str, str]

    @property
    def is_packed(self) -> bool:
        """Whether there is one element for each request."""
        return all(one.is_whole for _, one in self.requests) and "histogram" not in self.names

    @property
    def fields(self) -> Iterator[tuple[str, Field]]:
        """The name of each output, and what it holds."""
        return ((name, _FIELDS[field]) for field, name in self.names.items())

    def outside(self) -> Group:
        """The same summaries as outputs of the node around the body."""
        return Group(self.requests, {field: _outside(name) for field, name in self.names.items()})


def add_observers(model: ModelProto, requests: Sequence[Request]) -> tuple[ModelProto, list[Group]]:
    """A model whose only outputs are statistics of tensors of ``model``.

    Nodes and initializers that no requested tensor needs are left out, so that calibration computes only
    what it observes, and large weights that are not needed are never copied. ``model`` is not changed.

    A body gives its summaries back as further outputs. Those of an If are empty in the branch that was not
    taken, and a Loop or Scan merges them from one iteration to the next, so that memory does not grow.

    Args:
        requests: what to collect of inputs, initializers or outputs of nodes in any graph.

    Returns:
        The new model, and where to find what was requested.

    Raises:
        UsageError: no graph or several graphs have such a tensor; it is inside the body of an op other than
            If, Loop and Scan; or channels are asked for inside a Scan.
    """
    asked: defaultdict[str, list[Observation]] = defaultdict(list)
    for name, observation in requests:
        asked[name].append(observation)
    result = needed_part(model, asked)
    others = _other_floats(model.graph) & set(asked)
    groups = _Observers(asked, _unused_prefix(model.graph), others).add(result.graph, is_body=False)
    for name in (name for group in groups for name in group.names.values()):
        result.graph.output.add(name=name)
    for graph in walk_graphs(result.graph):
        list_early(graph)
    if all(entry.domain != QC_DOMAIN for entry in result.opset_import):
        result.opset_import.append(helper.make_opsetid(QC_DOMAIN, 1))
    return result, groups


class _Observers:
    """Adds observers to the graphs of a model, from the inside out."""

    def __init__(
        self, asked: Mapping[str, Sequence[Observation]], prefix: str, others: Collection[str] = ()
    ) -> None:
        self._asked = asked
        self._prefix = prefix
        self._others = others
        self._count = 0
        self._neutral: dict[tuple[int, str, str, int], str] = {}

    def add(self, graph: GraphProto, is_body: bool) -> list[Group]:
        """Adds the observers of one graph and of those inside it; the graph gets no outputs yet."""
        inside = [group for node in graph.node for group in self._add_inside(graph, node)]
        own = [
            group
            for name in dict.fromkeys(tensor_names(graph))
            for observation in self._asked.get(name, ())
            for group in self._observe(graph, (name, observation), sparse=not is_body)
        ]
        groups = [*own, *inside]
        packs: defaultdict[tuple[str, ...], list[Group]] = defaultdict(list)
        for group in groups:
            if group.is_packed:
                packs[tuple(group.names)].append(group)
        packed = [self._pack(graph, parts) for parts in packs.values()]
        return [*packed, *(group for group in groups if not group.is_packed)]

    def _observe(self, graph: GraphProto, request: Request, sparse: bool) -> list[Group]:
        """Adds the op that observes a tensor."""
        tensor, observation = request
        fields = _RANGE | _MOMENTS if observation.kind in ("moments", "gram") else _RANGE
        group = self._group((request,), fields)
        groups = [group]
        attributes: dict[str, Any] = {} if observation.axis is None else {"axis": observation.axis}
        if observation.kind == "histogram":
            groups.append(self._group((request,), _HISTOGRAM))
            attributes |= {"histogram": 1, "sparse": int(sparse)}
        if observation.kind == "gram":
            attributes |= {"gram": 1} | _conv_attributes(observation.patches)
        outputs = [name for one in groups for name in one.names.values()]
        op_type = "Observe" if fields is _RANGE else "ObserveMoments"
        if tensor in self._others:
            given, tensor = tensor, f"{outputs[0]}.cast"
            graph.node.append(helper.make_node("Cast", [given], [tensor], tensor, to=TensorProto.FLOAT))
        node = helper.make_node(
            op_type, [tensor], outputs, f"{outputs[0]}.observer", domain=QC_DOMAIN, **attributes
        )
        graph.node.append(node)
        return groups

    def _group(self, requests: tuple[Request, ...], fields: Iterable[str]) -> Group:
        stem = self._next_stem()
        return Group(requests, {field: f"{stem}.{field}" for field in fields})

    def _pack(self, graph: GraphProto, parts: Sequence[Group]) -> Group:
        """Joins the numbers of some groups to one output of each field, in steps of a few at a time.

        ONNX Runtime plans the memory in a time that grows with the square of the results that wait.
        """
        while len(parts) > _PACKED_AT_ONCE:
            chunks = [parts[i : i + _PACKED_AT_ONCE] for i in range(0, len(parts), _PACKED_AT_ONCE)]
            parts = [self._pack(graph, chunk) for chunk in chunks]
        packed = self._group(tuple(one for part in parts for one in part.requests), parts[0].names)
        for field, result in packed.names.items():
            names = [part.names[field] for part in parts]
            graph.node.append(helper.make_node("Concat", names, [result], name=f"{result}.packer", axis=0))
        return packed

    def _add_inside(self, graph: GraphProto, node: NodeProto) -> list[Group]:
        """Observes the bodies of a node and makes the summaries outputs of the node."""
        inside = [(body, group) for body in nested_graphs(node) for group in self.add(body, is_body=True)]
        if not inside:
            return []
        if node.domain in ("", "ai.onnx") and node.op_type == "If":
            _give_back(node, inside)
        elif node.domain in ("", "ai.onnx") and node.op_type in ("Loop", "Scan"):
            self._carry(graph, node, inside)
        else:
            raise UsageError(
                f"'{inside[0][1].requests[0][0]}' cannot be observed: it is inside the body of a "
                f"{node.op_type}, which does not bring statistics out"
            )
        return [group.outside() for _, group in inside]

    def _carry(self, graph: GraphProto, node: NodeProto, inside: Sequence[tuple[GraphProto, Group]]) -> None:
        """Lets a Loop or Scan carry summaries from one iteration to the next, and give back the last one."""
        is_scan = node.op_type == "Scan"
        first = 0 if is_scan else 2  # a Loop reads a trip count and a condition before its states
        scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0) if is_scan else 0
        body = inside[0][0]
        states = len(body.input) - first - scanned
        node.input.extend([""] * (first - len(node.input)))
        node.output.extend([""] * (states - len(node.output)))
        slots = [(group, name, field) for _, group in inside for name, field in group.fields]
        for index, (group, name, field) in enumerate(slots, states):
            tensor, observation = group.requests[0]
            if is_scan and not observation.is_whole:
                raise UsageError(
                    f"'{tensor}' is inside a Scan, where tensors can only be observed as a whole"
                )
            # A Scan wants its states to have a shape and to keep it.
            size = BINS if is_scan and "histogram" in group.names else len(group.requests)
            declared = size if is_scan else None
            before, after = f"{name}.before", f"{name}.after"
            body.node.append(helper.make_node(field.op_type, [before, name], [after], name=after))
            node.input.insert(first + index, self._nothing(graph, field, size))
            body.input.insert(first + index, field.info(before, declared))
            body.output.insert(index + (0 if is_scan else 1), field.info(after, declared))
            node.output.insert(index, _outside(name))

    def _nothing(self, graph: GraphProto, field: Field, size: int) -> str:
        """An initializer of ``graph`` with neutral numbers; equal ones are shared."""
        key = (id(graph), field.op_type, field.neutral.dtype.str, size)
        if key not in self._neutral:
            self._neutral[key] = f"{self._next_stem()}.nothing"
            graph.initializer.append(numpy_helper.from_array(field.nothing(size), self._neutral[key]))
        return self._neutral[key]

    def _next_stem(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count - 1}"


def _other_floats(graph: GraphProto) -> set[str]:
    """The inputs and outputs of a model that are floats of other types than the observers know."""
    declared = (*graph.input, *graph.output)
    return {info.name for info in declared if info.type.tensor_type.elem_type in _OTHER_FLOATS}


def _give_back(node: NodeProto, inside: Sequence[tuple[GraphProto, Group]]) -> None:
    """Makes the summaries of each branch outputs of an If; the other branches give empty ones."""
    for branch, group in inside:
        for name, field in group.fields:
            node.output.append(_outside(name))
            for body in nested_graphs(node):
                given = name
                if body is not branch:
                    given = f"{name}.nothing"
                    tensor = numpy_helper.from_array(field.nothing(len(group.requests)))
                    body.node.append(helper.make_node("Constant", [], [given], name=given, value=tensor))
                body.output.append(field.info(given))


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


def _conv_attributes(patches: Patches | None) -> dict[str, Any]:
    """The attributes of a Conv with such patches that are not empty."""
    if patches is None:
        return {}
    given = asdict(patches)
    return {name: value for name, value in {"kernel_shape": given.pop("kernel"), **given}.items() if value}


def _outside(name: str) -> str:
    """The name of a summary outside the body that makes it."""
    return f"{name}.outside"


def _unused_prefix(graph: GraphProto) -> str:
    """A beginning that no name in the graph or its subgraphs has."""
    taken = {name for body in walk_graphs(graph) for name in tensor_names(body)}
    prefix = _PREFIX
    while any(name.startswith(prefix) for name in taken):
        prefix += "."
    return prefix
