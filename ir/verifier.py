"""The verifier: every invariant of the IR that a pass could break, checked after each pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

import onnx

from .errors import ModelError, UsageError, VerificationError
from .graph import Graph, Op, Value, capture_port
from .model import Model
from .port_graph import CycleError, Port
from .quant.arithmetic import spread
from .quant.spec import Encoding, PerTensor

# ONNX Runtime has them in older opsets than ONNX.
_OLDER_IN_RUNTIME = ("LayerNormalization",)


def verify(model: Model) -> None:
    """Checks structure, names, ops that passes made, regions and quantizers.

    Raises:
        VerificationError: the first broken invariant, with the op or value that breaks it.
    """
    for problem in _problems(model):
        raise VerificationError(problem)


def verify_input(model: Model) -> None:
    """Like :func:`verify`, for a model that comes from a user: what is wrong is the model's fault.

    Raises:
        ModelError: the first broken invariant.
    """
    for problem in _problems(model):
        raise ModelError(f"the model is invalid: {problem}")


def _problems(model: Model) -> Iterator[str]:
    try:
        graphs = list(model.graphs())
    except CycleError as error:
        yield str(error)
        return
    yield from _interface_problems(model)
    for graph in graphs:
        yield from _structure_problems(graph)
        yield from _made_problems(graph)
    yield from _region_problems(model)
    yield from _quantizer_problems(model)


def _interface_problems(model: Model) -> Iterator[str]:
    """Outputs keep their names and their order, by which results are told apart."""
    declared = [info.name for info in model.origin.graph.output]
    found = [value.name if value is not None else "" for value in model.graph.outputs]
    for name, other in zip_longest(declared, found):
        if name != other:
            lacks = (
                f"'{name}' is no output of it any more" if name is not None else f"'{other}' is a new output"
            )
            yield f"the interface of the model is another one: {lacks}"


def _structure_problems(graph: Graph) -> Iterator[str]:
    names = Counter(value.name for value in dict.fromkeys(value.original for value in graph.values()))
    for name, count in names.items():
        if count > 1:
            yield f"the name '{name}' stands for {count} values of graph '{graph.name}'"
    given = {id(value) for value in graph.inputs}
    makers_of = graph.nx.sources
    for value in graph.values():
        makers = makers_of(value.id)
        producers = sum(map(len, makers.values())) if makers else 0
        sources = producers + (id(value) in given or value.const is not None) + (value.captured is not None)
        if sources > 1:
            yield f"'{value.name}' is defined {sources} times in graph '{graph.name}'"
        if sources == 0 and value.is_read:
            uses = value.uses
            who = uses[0].op.label if uses else "a graph output"
            yield f"{who} reads '{value.name}', which nothing defines"
    for op in graph.ops():
        yield from _op_problems(op)
    if graph.parent is not None:
        yield from _capture_problems(graph, graph.parent)


def _op_problems(op: Op) -> Iterator[str]:
    ports = [port for edges in op.graph.nx.sources(op.id).values() for port in edges]
    if len(set(ports)) < len(ports):
        repeated = next(port for port, count in Counter(ports).items() if count > 1)
        yield f"input {repeated} of {op.label} is connected more than once"
    others = [port for port in ports if not isinstance(port, int) or port >= op.num_inputs]
    if not others:
        return
    yield from _unused_captures(op)
    if any(isinstance(port, int) for port in others):
        yield f"{op.label} has an input beyond its {op.num_inputs}"


def _unused_captures(op: Op) -> Iterator[str]:
    inside = (value for body in op.subgraphs.values() for value in body.values())
    captured = {capture_port(value) for value in inside if value.captured is not None}
    for source, edges in op.graph.nx.sources(op.id).items():
        if any(not isinstance(port, int) and port not in captured for port in edges):
            yield f"{op.label} reads '{op.graph.payload(source).name}', which its subgraphs do not capture"


def _capture_problems(graph: Graph, owner: Op) -> Iterator[str]:
    """What is captured from around must be read by the op that the graph belongs to."""
    for value in graph.values():
        if value.captured is not None and not _reads(owner, capture_port(value), value.captured):
            yield f"'{value.name}' of graph '{graph.name}' captures what its op does not read"


def _made_problems(graph: Graph) -> Iterator[str]:
    """Ops that passes made must have the form that their operator has in the opset of the model."""
    opset = graph.model.opset
    for op in graph.ops():
        if op.proto is None and not op.domain:
            yield from _form_problems(op, opset)


def _form_problems(op: Op, opset: int) -> Iterator[str]:
    form = _form_of(op.op_type, opset)
    if form is None:
        if onnx.defs.has(op.op_type) and op.op_type not in _OLDER_IN_RUNTIME:
            yield f"{op.label} is of an operator that opset {opset} has not"
        return  # ONNX Runtime has operators of its own in this domain
    unknown = [name for name in op.attributes if name not in form.attributes]
    if unknown:
        yield f"{op.label} has the attribute '{unknown[0]}', which its operator has not in opset {opset}"
    if not form.fewest <= op.num_inputs <= form.most:
        allowed = f"{form.fewest} to {form.most} in opset {opset}"
        yield f"{op.label} has {op.num_inputs} inputs, its operator {allowed}"


class _Form(NamedTuple):
    attributes: frozenset[str]
    fewest: int
    most: int


@cache
def _form_of(op_type: str, opset: int) -> _Form | None:
    """How an operator of ONNX is used; None if the opset has none of that name."""
    if not onnx.defs.has(op_type, opset):
        return None
    schema = onnx.defs.get_schema(op_type, opset)
    return _Form(frozenset(schema.attributes), schema.min_input, schema.max_input)


def _region_problems(model: Model) -> Iterator[str]:
    claimed: dict[int, str] = {}
    for region in model.regions:
        for op in region.ops:
            if op not in region.graph:
                yield f"region {region.name} holds {op.op_type} '{op.name}', which is no longer in the graph"
            elif op.id in claimed:
                yield f"{op.label} belongs to both {claimed[op.id]} and {region.name}"
            claimed[op.id] = region.name


def _quantizer_problems(model: Model) -> Iterator[str]:
    graphs = set(model.graphs())
    for site in model.quant.sites():
        if site.value.graph not in graphs or site.value not in site.value.graph:
            yield f"a quantizer sits on '{site.value.name}', which is no longer in the graph"
            continue
        if site.op is not None and not _reads(site.op, site.port, site.value):
            yield f"a quantizer sits on {site}, which is not an input of that op"
        if site.value.type.elem_type and not site.value.is_float:
            yield f"a quantizer sits on '{site.value.name}', which is not a float tensor"
        quantizer = model.quant.get(site)
        if quantizer is not None and quantizer.encoding is not None:
            if quantizer.encoding.spec != quantizer.spec:
                yield f"the encoding of {site} belongs to another spec than its quantizer"
            yield from _encoding_problems(site.value, quantizer.encoding)
        const = site.value.original.const
        codes = quantizer.codes if quantizer is not None else None
        if codes is not None and (const is None or codes.shape != const.shape):
            yield f"the codes that were chosen for {site} are not in its shape"


def _encoding_problems(value: Value, encoding: Encoding) -> Iterator[str]:
    if value.const is None or isinstance(encoding.spec.granularity, PerTensor):
        return
    try:
        spread(encoding.scale, encoding, value.const.shape)
    except UsageError as error:
        yield f"the encoding of '{value.name}' does not fit: {error}"


def _reads(op: Op, port: Port | None, value: Value) -> bool:
    return op in op.graph and port is not None and op.graph.nx.has_edge(value.id, op.id, key=port)
