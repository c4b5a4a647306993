"""How exact the simulation is: against the QDQ model in float, and against integers.

    python benches/exactness.py resnet50 mobilenetv2 vit
    python benches/exactness.py model.onnx --data calibration.npz

"float" is the share of output values that the simulation and the QDQ model have in common to the bit, when
ONNX Runtime runs both as they are written. The simulation rounds its weights at run time here, as the other
does: stored weights of a MatMul or Gemm are packed, and summed in another order.

"one step" is the share of all quantized values for which integers are at most one step of the grid from the
simulation, and "equal" that without a difference. Every op is run by itself, fused as in the whole model, on
what the simulation feeds it: in a deep network of random weights a single step grows from layer to layer.
Ends with exit code 1 if the first is not 100 % or the second below 99.9 %.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import numpy as np
import onnx
from models.networks import NETWORKS, feeds
from onnx import ModelProto, NodeProto, helper
from rich.console import Console
from rich.table import Table

import qc
from qc.passes import PassContext
from qc.passes.lower.rounding.simulation import WeightRounding
from qc.passes.lower.to_simulation import ToSimulation
from qc.runtime import expose_tensors, load_data, model_inputs, open_session, run_session

LIMIT = 0.999
CALIBRATION_SAMPLES = 8

Feed = dict[str, np.ndarray]


def equal_in_float(compiled: qc.Compiled, samples: list[Feed]) -> float:
    """The share of output values that are equal to the bit."""
    context = PassContext(target=compiled.target)
    ToSimulation(weights=WeightRounding.SETTABLE).run(compiled.ir, context)
    simulation = context.artifacts["simulation"].payload
    assert isinstance(simulation, ModelProto)
    models = [open_session(model, optimize=False, threads=1) for model in (simulation, compiled.model)]
    equal = total = 0
    for feed in samples:
        for x, y in zip(*(run_session(model, feed) for model in models), strict=True):
            equal += np.count_nonzero((x == y) | ((x != x) & (y != y)))
            total += x.size
    return equal / total


class Pieces:
    """The QDQ model cut at its activations: each piece computes one quantized tensor from others."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        self.tensors: dict[str, str] = {}  # what is quantized, and its restored form
        for node in model.graph.node:
            restored = [
                reader for reader in readers.get(node.output[0], ()) if reader.op_type == "DequantizeLinear"
            ]
            if node.op_type == "QuantizeLinear" and node.input[0] in self.makers and restored:
                self.tensors[node.input[0]] = restored[0].output[0]

    def piece(self, tensor: str, arrays: Feed) -> tuple[ModelProto, Feed]:
        """A model that computes one restored tensor, and its feed; ``arrays`` holds all tensors."""
        result = self.tensors[tensor]
        nodes: dict[int, NodeProto] = {}
        inputs: dict[str, None] = {}
        pending = [result]
        while pending:
            name = pending.pop()
            node = self.makers.get(name)
            if node is None or (name in self.tensors and name != tensor):
                if name not in self.constants:
                    inputs[name] = None
                continue
            if id(node) not in nodes:
                nodes[id(node)] = node
                pending += [read for read in node.input if read]
        ordered = [node for node in self.model.graph.node if id(node) in nodes]
        used = {name for node in ordered for name in node.input}
        graph = helper.make_graph(
            ordered,
            "piece",
            [_described(name, arrays[name]) for name in inputs],
            [_described(result, arrays[tensor])],
            [self.constants[name] for name in self.constants if name in used],
        )
        model = helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )
        return model, {name: arrays[name] for name in inputs}


def _described(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def steps_in_integers(compiled: qc.Compiled, samples: list[Feed]) -> Iterator[np.ndarray]:
    """The distances of integers from the simulation in steps of the grid, one array for each op and feed."""
    pieces, simulation = Pieces(compiled.model), compiled.simulation
    rounded = {n.input[0]: n.output[0] for n in simulation.graph.node if n.op_type == "FakeQuantize"}
    made = {name for node in simulation.graph.node for name in node.output}
    table = compiled.ir.quant
    grids = {site.value.name: table.get(site) for site in table.sites() if site.op is None}
    known = [name for name in pieces.tensors if name in made and name in grids]
    names = {name: rounded.get(name, name) for name in known}
    outputs = list(dict.fromkeys(names.values()))
    session = open_session(expose_tensors(simulation, outputs), threads=1)
    for feed in samples:
        results = dict(zip(outputs, run_session(session, feed, outputs), strict=True))
        arrays = {**feed, **{name: results[place] for name, place in names.items()}}
        for name in known:
            quantizer = grids[name]
            assert quantizer is not None and quantizer.encoding is not None
            model, fed = pieces.piece(name, arrays)
            real = run_session(open_session(model, threads=1), fed)[0]
            yield np.rint(np.abs(real - arrays[name]) / quantizer.encoding.scale)


def compile_case(name: str, target: str, data: str | None, count: int) -> tuple[qc.Compiled, list[Feed]]:
    """A network of the benches or a model file, compiled, and the samples to compare on."""
    if name in NETWORKS:
        compiled = qc.compile(
            NETWORKS[name](), "w8a8", data=lambda: feeds(CALIBRATION_SAMPLES), target=target
        )
        return compiled, list(feeds(count))
    if data is None:
        raise click.ClickException(f"'{name}' is no network of the benches; a model file needs --data")
    source = load_data(data, model_inputs(onnx.load(name, load_external_data=False)))
    compiled = qc.compile(Path(name), "w8a8", data=source, target=target)
    return compiled, [dict(feed) for feed in islice(source, count)]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK|MODEL.onnx]...", nargs=-1)
@click.option("--target", default="ort-cpu", show_default=True, help="What the integers are lowered for.")
@click.option("--data", metavar="SRC", help="Data of a model file.")
@click.option("--count", default=1, show_default=True, help="Samples to compare on.")
def main(names: tuple[str, ...], target: str, data: str | None, count: int) -> None:
    """Prints one row per model."""
    table = Table("model", "float", "values", "equal", "one step", "most steps")
    missed = False
    for name in names or tuple(NETWORKS):
        compiled, samples = compile_case(name, target, data, count)
        common = equal_in_float(compiled, samples)
        steps = [array.ravel() for array in steps_in_integers(compiled, samples)]
        counted = np.concatenate(steps) if steps else np.zeros(1)
        near = float(np.mean(counted <= 1))
        missed |= common < 1 or near < LIMIT
        cells = (f"{common:.4%}", f"{counted.size:,}", f"{np.mean(counted == 0):.4%}", f"{near:.4%}")
        table.add_row(Path(name).name, *cells, f"{counted.max():.0f}")
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
