"""Where the errors of quantized tensors are measured: the places in the float model and in the simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, numpy_helper

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.onnx.stored_types import computed_names
from qc.ir.quant import arithmetic
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site
from qc.runtime.evaluation.simulation import rounding_of

_SCALE = re.compile(r"q(\d+)/scale")


@dataclass(frozen=True)
class Place:
    """One quantized tensor: names of tensors of the float model and of the simulation.

    Attributes:
        reference: the tensor of the float model.
        isolated: its counterpart in the probing float model; None if it is made by rounding the reference.
        simulated: its counterpart in the simulation; None if there is none.
    """

    value: Value
    quantizer: Quantizer
    op: Op | None
    reference: str
    isolated: str | None
    simulated: str | None


class SimulatedTensors:
    """Finds tensors of the float model in the simulation, by the settings that its quantizers read."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.rounding = rounding_of(model)
        self._steps: list[tuple[int, str, str]] = []
        self._tensors = {value.name for value in model.graph.input}
        for node in model.graph.node:
            self._tensors.update(node.output)
            match = _SCALE.fullmatch(node.input[1]) if node.op_type == "FakeQuantize" else None
            if match is not None:
                self._steps.append((int(match[1]), node.input[0], node.output[0]))

    def after(self, tensor: str, quantizer: int) -> str | None:
        """The tensor rounded by a quantizer.

        Where the tensor is on the grid anyway the simulation need not round it, and it is the tensor itself.
        """
        names = {tensor}
        for number, source, result in self._steps:
            if source in names or result == tensor:  # an output of the graph keeps its name when rounded
                if number == quantizer:
                    return result
                names.add(result)
        return tensor if tensor in self._tensors else None

    def before(self, tensor: str) -> str | None:
        """The tensor before it is rounded."""
        for _, source, result in self._steps:
            if result == tensor:
                return source
        return tensor if tensor in self._tensors else None


def find_places(ir: Model, model: ModelProto, simulation: SimulatedTensors) -> tuple[list[Place], int]:
    """The places to measure at in the order of the graph, and how many quantized tensors are left out.

    Args:
        ir: a model with quantizers.
        model: its float model. For every quantized constant it gets a copy of the op that reads it.
        simulation: its simulation.

    Raises:
        UsageError: a quantizer has no numbers.
    """
    nodes = {name: node for node in model.graph.node for name in node.output}
    exact, rounded = (computed_names(ir, one) for one in (model, simulation.model))
    order = {name: place for place, name in enumerate(nodes)}
    copies = _Copies(model, nodes, simulation.rounding)
    places: dict[tuple[Value, Quantizer, Op | None], Place] = {}
    outside: dict[Value, None] = {}
    for site in ir.quant.sites():
        value, quantizer = site.value, ir.quant.get(site)
        assert quantizer is not None
        if value.graph is not ir.graph:
            outside[value.original] = None
        elif value.const is None and not _is_carried(ir, value, quantizer):
            simulated = simulation.after(rounded.get(value.name, value.name), quantizer.id)
            producer, name = value.producer, exact.get(value.name, value.name)
            places[value, quantizer, None] = Place(value, quantizer, producer, name, None, simulated)
        elif value.const is not None:
            for op, port in _readers(site):
                output = _first_output(op)
                result = exact.get(output, output)
                if result in nodes and (value, quantizer, op) not in places:
                    copy = copies.add(value, quantizer, result, port)
                    simulated = simulation.before(rounded.get(output, output))
                    places[value, quantizer, op] = Place(value, quantizer, op, result, copy, simulated)
    found = sorted(places.values(), key=lambda one: (order.get(one.reference, -1), one.isolated is None))
    return found, len(outside)


def _is_carried(ir: Model, value: Value, quantizer: Quantizer) -> bool:
    """Whether a tensor only holds numbers of another one that is rounded to the same grid."""
    producer = value.producer
    if producer is None or not is_grid_preserving(producer):
        return False
    source = producer.inputs[0]
    return source is not None and source.const is None and ir.quant.of_use(source, producer, 0) is quantizer


def _readers(site: Site) -> Iterator[tuple[Op, int]]:
    """The ops that read a constant at a site, with their ports; those inside bodies are left out."""
    if site.op is not None and site.port is not None:
        yield site.op, site.port
        return
    for op, port in site.value.uses:
        if isinstance(port, int):
            yield op, port


def _first_output(op: Op) -> str:
    return next((value.name for value in op.outputs if value is not None), "")


class _Copies:
    """Adds copies of ops of which one input is another constant."""

    def __init__(self, model: ModelProto, nodes: Mapping[str, NodeProto], rounding: Rounding) -> None:
        self._graph = model.graph
        self._nodes = nodes
        self._rounding = rounding
        self._rounded: dict[tuple[Value, Quantizer], str] = {}
        self._prefix = "qc.alone."
        while any(name.startswith(self._prefix) for name in nodes):
            self._prefix += "."

    def add(self, value: Value, quantizer: Quantizer, result: str, port: int) -> str:
        """Copies the node that makes ``result``, with input ``port`` rounded; the name of the counterpart."""
        original = self._nodes[result]
        copy = self._graph.node.add()
        copy.CopyFrom(original)
        copy.name = ""
        stem = f"{self._prefix}{len(self._graph.node)}"
        copy.input[port] = self._constant(value, quantizer)
        copy.output[:] = [f"{stem}.{name}" if name else "" for name in original.output]
        return f"{stem}.{result}"

    def _constant(self, value: Value, quantizer: Quantizer) -> str:
        key = (value, quantizer)
        if key not in self._rounded:
            if quantizer.encoding is None or value.const is None:
                raise UsageError(f"'{value.name}' has no encoding yet; run 'calibrate' first")
            # What a pass added for the sake of other quantizers, as to a bias, is no error of this one.
            exact = value.float_const or value.const
            rounded = arithmetic.rounded(exact.numpy(), quantizer, self._rounding)
            self._rounded[key] = f"{self._prefix}constant.{len(self._rounded)}"
            self._graph.initializer.append(numpy_helper.from_array(rounded, self._rounded[key]))
        return self._rounded[key]
