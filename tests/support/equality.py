"""When two IRs are the same.

Everything agrees but ids, journals, base folders, and which names are not given again. Graphs correspond by
where they are, ops by their order, values by their age. Names, types, attributes, data, connections, origins,
regions, quantizers and reasons must agree, and both IRs must lower to the same bytes; where external data lie
does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from onnx import AttributeProto, TensorProto

from qc.ir.graph import Graph, Op, Region, Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower, serialize
from qc.ir.onnx.protos import model_tensors
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site
from qc.ir.tensor_ref import TensorRef


def same(a: Model, b: Model) -> bool:
    """Whether two IRs are the same."""
    return next(differences(a, b), None) is None


def differences(a: Model, b: Model) -> Iterator[str]:
    """What differs between two IRs, in words; nothing if they are the same.

    Where the structure differs, what depends on it is not compared.
    """
    comparison = _Comparison(a, b)
    structure = list(comparison.structure())
    if structure:
        yield from structure
        return
    yield from comparison.contents()
    yield from comparison.quantization()
    if _lowered(a) != _lowered(b):
        yield "the models lower to different bytes"


class _Comparison:
    def __init__(self, a: Model, b: Model) -> None:
        self.a, self.b = a, b
        self.graphs: dict[Graph, Graph] = {}
        self.values: dict[Value, Value] = {}
        self.ops: dict[Op, Op] = {}

    # -- structure ----------------------------------------------------------------------------------

    def structure(self) -> Iterator[str]:
        """Pairs graphs, ops and values, and says where that is impossible."""
        if self.a.opset_imports != self.b.opset_imports:
            yield "the operator sets differ"
        if list(self.a.functions) != list(self.b.functions):
            yield "the functions differ"
            return
        pending = [
            (self.a.graph, self.b.graph),
            *zip(self.a.functions.values(), self.b.functions.values(), strict=True),
        ]
        while pending:
            pair = pending.pop()
            problem = self._pair(*pair)
            if problem:
                yield f"graph '{pair[0].name}': {problem}"
                continue
            for op in pair[0].ops():
                pending += zip(op.subgraphs.values(), self.ops[op].subgraphs.values(), strict=True)

    def _pair(self, a: Graph, b: Graph) -> str:
        if [_kind(op) for op in a.ops()] != [_kind(op) for op in b.ops()]:
            return "the ops differ"
        if [_outline(value) for value in a.values()] != [_outline(value) for value in b.values()]:
            return "the values differ"
        self.graphs[a] = b
        self.ops.update(zip(a.ops(), b.ops(), strict=True))
        self.values.update(zip(a.values(), b.values(), strict=True))
        return ""

    # -- contents -----------------------------------------------------------------------------------

    def contents(self) -> Iterator[str]:
        """How the ops are connected, their attributes, and the data of constants."""
        for a, b in self.graphs.items():
            if a.name != b.name:
                yield f"graph '{a.name}' is named '{b.name}'"
            if self._mapped(a.inputs) != tuple(b.inputs) or self._mapped(a.outputs) != tuple(b.outputs):
                yield f"graph '{a.name}': the inputs or outputs differ"
            if [self.ops[op] for op in _by_position(a)] != _by_position(b):
                yield f"graph '{a.name}': the ops have other positions"
            for op in a.ops():
                yield from (f"{op.label}: {problem}" for problem in self._op(op, self.ops[op]))
            for value in a.values():
                yield from (
                    f"'{value.name}': {problem}" for problem in self._value(value, self.values[value])
                )

    def _op(self, a: Op, b: Op) -> Iterator[str]:
        if self._mapped(a.inputs) != b.inputs:
            yield "the inputs differ"
        if self._mapped(a.outputs) != b.outputs:
            yield "the outputs differ"
        if Counter(self._mapped(a.captures)) != Counter(b.captures):
            yield "the captured values differ"
        if _attributes(a) != _attributes(b):
            yield "the attributes differ"

    def _value(self, a: Value, b: Value) -> Iterator[str]:
        if (self.values[a.captured] if a.captured else None) is not b.captured:
            yield "it stands for another value"
        if a.const is not None and b.const is not None and not _same_data(a.const, b.const):
            yield "the data differ"

    def _mapped(self, values: tuple[Value | None, ...] | list[Value]) -> tuple[Value | None, ...]:
        return tuple(None if value is None else self.values[value] for value in values)

    # -- quantization -------------------------------------------------------------------------------

    def quantization(self) -> Iterator[str]:
        """Regions, quantizers, and reasons."""
        if [self._region(region) for region in self.a.regions] != [
            _region(region) for region in self.b.regions
        ]:
            yield "the regions differ"
        tables = self.a.quant, self.b.quant
        if [self._site(site) for site in tables[0].sites()] != tables[1].sites():
            yield "the sites differ"
            return
        for x, y in zip(tables[0].quantizers(), tables[1].quantizers(), strict=False):
            yield from self._quantizer(x, y)
        if len(tables[0].quantizers()) != len(tables[1].quantizers()):
            yield "there are more quantizers in one of them"
        if tables[0].scheme != tables[1].scheme:
            yield "the ranges of activations were found in another way"
        for value, partner in self.values.items():
            if tables[0].why_not(value) != tables[1].why_not(partner):
                yield f"'{value.name}' stays float for another reason"

    def _quantizer(self, a: Quantizer, b: Quantizer) -> Iterator[str]:
        sites = [self._site(site) for site in self.a.quant.sites_of(a)]
        if sites != self.b.quant.sites_of(b):
            yield f"{a}: it is at other sites"
        if (a.spec, a.state) != (b.spec, b.state):
            yield f"{a}: the spec or the state differs"
        if a.encoding is not None and b.encoding is not None and not a.encoding.equals(b.encoding):
            yield f"{a}: the numbers differ"

    def _site(self, site: Site) -> Site:
        return Site(self.values[site.value], self.ops[site.op] if site.op is not None else None, site.port)

    def _region(self, region: Region) -> tuple[object, ...]:
        name, graph, ops, captures = _region(region)
        mapped = {key: self.values[value] for key, value in captures.items()}
        return name, self.graphs[graph], tuple(self.ops[op] for op in ops), mapped


def _region(region: Region) -> tuple[str, Graph, tuple[Op, ...], dict[str, Value]]:
    """What a region is made of, without captured values that are not in the graph any more."""
    graph = region.graph
    return region.name, graph, region.ops, {k: v for k, v in region.captures.items() if v in graph}


def _kind(op: Op) -> tuple[object, ...]:
    made = op.proto is None
    return op.domain, op.op_type, op.overload, op.name, made, op.provenance, tuple(op.subgraphs)


def _outline(value: Value) -> tuple[object, ...]:
    return value.name, value.type, value.const is None, value.captured is None


def _by_position(graph: Graph) -> list[Op]:
    return sorted(graph.ops(), key=lambda op: op.position)


def _attributes(op: Op) -> dict[str, bytes]:
    return {name: _bytes(attribute) for name, attribute in op.attributes.items()}


def _bytes(attribute: AttributeProto) -> bytes:
    if attribute.t.data_location == TensorProto.EXTERNAL:
        bare = AttributeProto()
        bare.CopyFrom(attribute)
        _forget_place(bare.t)
        attribute = bare
    return attribute.SerializeToString(deterministic=True)


def _same_data(a: TensorRef, b: TensorRef) -> bool:
    """Whether two constants have the same type, shape and bytes."""
    if a.proto is b.proto:
        return True
    if (a.data_type, a.shape) != (b.data_type, b.shape):
        return False
    if not (a.is_external or b.is_external):
        return True  # compared with all else that the lowered models hold
    return np.array_equal(_raw(a), _raw(b))


def _raw(data: TensorRef) -> np.ndarray:
    return np.ascontiguousarray(data.numpy()).reshape(-1).view(np.uint8)


def _lowered(model: Model) -> bytes:
    proto = lower(model)
    for tensor in model_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            _forget_place(tensor)
    return serialize(proto)


def _forget_place(tensor: TensorProto) -> None:
    del tensor.external_data[:]
