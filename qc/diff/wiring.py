"""How the ops of a model are connected, seen through what only rounds and what only holds a constant.

A tensor that is quantized and dequantized again is the same tensor with a *quantization*, and so is a
constant that is stored in codes with a DequantizeLinear behind it. An Identity of a constant is the constant.
A quantizer of the IR is a quantization as well: a model means the same before and after its quantizers became
ops.
"""

from __future__ import annotations

from typing import NamedTuple

from qc.ir.facts.clipped_codes import readers_of_codes
from qc.ir.facts.constants import constant_data, constant_op_data
from qc.ir.facts.qdq import QdqReader, Quantization
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model


class Read(NamedTuple):
    """What an op or a graph output reads: a tensor, and how it is quantized on the way, in order."""

    value: Value
    quantizations: tuple[Quantization, ...] = ()


class User(NamedTuple):
    """An op that reads a tensor: at an input port, or with port None inside one of its subgraphs."""

    op: Op
    port: int | None


class GraphWiring:
    """The connections of one graph.

    Attributes:
        ops: the ops in topological order, without those that quantize or make a constant.
        reads: what each op reads, by port; None for an input that is left out.
        captured: what each op with subgraphs reads inside of them.
        makes: what each op makes, by port; None for an output that is left out.
        results: what each output of the graph is.
        given_as: the other way round: the outputs by tensor.
        users: by tensor of this or an enclosing graph, who reads it here.
        producer: by tensor of this graph, the op among ``ops`` that makes it.
        constants: the constants of this graph, without those of quantizations.
    """

    def __init__(self, graph: Graph, wiring: Wiring) -> None:
        self.graph = graph
        self.ops = [op for op in graph.ops() if op not in wiring.hidden]
        self.reads: dict[Op, tuple[Read | None, ...]] = {}
        self.results: dict[Op, tuple[Value | None, ...]] = {}
        self.captured: dict[Op, tuple[Value, ...]] = {}
        self.users: dict[Value, list[User]] = {}
        self.producer: dict[Value, Op] = {}
        for op in self.ops:
            self._connect(op, wiring)
        self.outputs = {value: wiring.read(value) for value in graph.outputs if value is not None}
        self.given_as: dict[Value, list[Value]] = {}
        for output, found in self.outputs.items():
            self.given_as.setdefault(found.value, []).append(output)
        self.constants = [value for value in graph.values() if self._is_constant(value)]

    def _connect(self, op: Op, wiring: Wiring) -> None:
        self.results[op] = op.outputs
        for value in self.results[op]:
            if value is not None:
                self.producer[value] = op
        self.reads[op] = tuple(
            None if value is None else wiring.read(value, op, port) for port, value in enumerate(op.inputs)
        )
        for port, found in enumerate(self.reads[op]):
            if found is not None:
                self.users.setdefault(found.value, []).append(User(op, port))
        if op.subgraphs:
            captured = (wiring.read(value).value for value in op.captures)
            self.captured[op] = tuple(dict.fromkeys(captured))
            for value in self.captured[op]:
                self.users.setdefault(value, []).append(User(op, None))

    def result_name(self, op: Op) -> str:
        """The name of the first thing that an op makes; empty if it makes nothing."""
        return next((value.name for value in self.results[op] if value is not None), "")

    def _is_constant(self, value: Value) -> bool:
        if value.captured is not None or constant_data(value) is None:
            return False
        return value in self.users or not value.uses


class Wiring:
    """The connections of all graphs of a model.

    Attributes:
        hidden: the ops that only quantize or make a constant.
        scopes: the connections by graph, outer graphs before inner ones.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.hidden: dict[Op, None] = {}
        self._behind: dict[Value, Read] = {}
        self._reader = QdqReader()
        self._only_quantizes: dict[Op, bool] = {}
        for op in model.ops():
            self._hide(op)
        self.scopes = {graph: GraphWiring(graph, self) for graph in model.graphs()}

    def read(self, value: Value, op: Op | None = None, port: int | None = None) -> Read:
        """What reading ``value`` means, at an input of ``op`` or, without one, for all users."""
        original = value.original
        found = self._behind.get(original)
        if found is None:
            found = self._behind[original] = Read(original)
        table = self.model.quant
        if not len(table):
            return found
        quantizer = table.of_value(original)
        if op is not None and port is not None:
            quantizer = table.of_use(value, op, port) or quantizer
        if quantizer is None:
            return found
        spec = quantizer.spec
        own = Quantization(spec, quantizer.encoding, quantizer, narrow=spec.narrow)
        return Read(found.value, (*found.quantizations, own))

    def _hide(self, op: Op) -> None:
        """Sees through ``op`` if it only quantizes, or only holds a constant."""
        if constant_op_data(op) is not None or self._is_constant_again(op):
            self.hidden[op] = None
        found = self._reader.quantization(op)
        result = op.outputs[0] if found is not None else None
        if found is None or result is None:
            return
        source, quantization = found
        behind = self.read(source)
        self._behind[result] = Read(behind.value, (*behind.quantizations, quantization))
        self.hidden[op] = None
        first, *between = quantization.ops[:-1] or quantization.ops
        if first not in self._only_quantizes:
            self._only_quantizes[first] = self._is_only_dequantized(first)
        if self._only_quantizes[first]:
            self.hidden |= dict.fromkeys([first, *between])

    def _is_constant_again(self, op: Op) -> bool:
        """Whether ``op`` gives a constant as it is; whoever reads its result then reads the constant."""
        source, result = op.inputs[:1], op.outputs[0]
        if not op.is_type("Identity") or source[0] is None or result is None or result.is_output:
            return False
        behind = self.read(source[0])
        if constant_data(behind.value) is None:
            return False
        self._behind[result] = behind
        return True

    def _is_only_dequantized(self, quantize: Op) -> bool:
        """Whether nothing but DequantizeLinear ops of the same grid reads the codes that an op makes."""
        codes = quantize.outputs[0]
        if codes is None or codes.is_output:
            return False
        _, readers = readers_of_codes(codes)
        return all(self._reader.quantization(reader) is not None for reader in readers)
