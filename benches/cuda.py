"""What quantization costs on a GPU: the kernels beside one that negates, networks beside their float models.

    python benches/cuda.py

The first table has the time of each operator on a tensor, and its ratio to a float negation by ONNX Runtime,
which reads and writes the tensor once and does nothing else, so it is as long as a copy. The second table has
ratios to the float model; inputs and outputs stay on the GPU, but for those of calibration. Everything runs
in turns, and medians of the clock are compared. The networks have the shapes of the real ones and random
weights (see models/networks.py). Ends with exit code 1 above the limit, and 2 where CUDA cannot be used.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime as ort
from models import networks
from models.networks import NETWORKS, feeds
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table
from speed import Laps, observed

import qc
from qc.ir.errors import QcError
from qc.runtime import OrtExecutor, choose_provider, open_session

LIMIT = 1.3  # of FakeQuantize, in copies of the tensor
OPS_IN_A_ROW = 20
CALIBRATIONS = ("min-max", "histogram")
STATISTICS = ("minimum", "maximum", "count", "nonfinite", "histogram")
GRID = {
    "scale": np.array(0.05, np.float32),
    "zero_point": np.array(3, np.int32),
    "limits": np.array([-128, 127], np.int32),
}
CHANNELS = 64
CHANNEL_GRID = {
    "channel_scale": np.full(CHANNELS, 0.05, np.float32),
    "channel_zero_point": np.full(CHANNELS, 3, np.int32),
}

Run = Callable[[], object]


def interleaved(runs: Sequence[Run], rounds: int) -> list[float]:
    """Median seconds of every function, called in turns after three calls each to warm up."""
    times: list[list[float]] = [[] for _ in runs]
    for round in range(rounds + 3):
        for run, record in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            if round >= 3:
                record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


def bound(session: ort.InferenceSession, feed: dict[str, np.ndarray], device: str) -> Run:
    """Runs a session, and waits for it, with all inputs and outputs in the memory of the device."""
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, device, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, device)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def chain(length: int, op_type: str, *parameters: str, **attributes: Any) -> onnx.ModelProto:
    """A model of so many ops, each on the result of the one before."""
    nodes = [
        helper.make_node(
            op_type, [f"x{index}" if index else "x", *parameters], [f"x{index + 1}"], **attributes
        )
        for index in range(length)
    ]
    return model_of(nodes, helper.make_tensor_value_info(f"x{length}", TensorProto.FLOAT, ["c", "n"]))


def quantizers(length: int) -> onnx.ModelProto:
    """A model of so many quantizers with one scale, each on the result of the one before."""
    return chain(length, "FakeQuantize", *GRID, domain="qc")


def channel_quantizers(length: int) -> onnx.ModelProto:
    """Likewise, with a scale for each channel."""
    return chain(length, "FakeQuantize", *CHANNEL_GRID, "limits", domain="qc", granularity="channel", axis=0)


def observers(histogram: bool, number: int) -> onnx.ModelProto:
    """A model of so many observers of its input."""
    nodes = []
    for index in range(number):
        names = [f"{kind}{index}" for kind in (STATISTICS if histogram else STATISTICS[:4])]
        nodes.append(helper.make_node("Observe", ["x"], names, domain="qc", histogram=int(histogram)))
    return model_of(
        nodes, *(helper.make_tensor_value_info(node.output[2], TensorProto.INT64, [1]) for node in nodes)
    )


def model_of(nodes: list[onnx.NodeProto], *outputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    """A model of a matrix ``x``, with grids."""
    weights = [numpy_helper.from_array(array, name) for name, array in (GRID | CHANNEL_GRID).items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["c", "n"])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qc", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def measure_operators(elements: int, rounds: int, provider: str) -> dict[str, float]:
    """Seconds of one op of each kind. What a run costs besides its ops is taken off, by a run of one op."""
    x = np.random.default_rng(0).standard_normal((CHANNELS, elements // CHANNELS), np.float32)
    positive = np.maximum(x, 0)  # as after a Relu; a GPU may divide zeros in another way
    kinds: dict[str, tuple[np.ndarray, Callable[[int], onnx.ModelProto]]] = {
        "Neg": (x, lambda length: chain(length, "Neg")),
        "FakeQuantize": (x, quantizers),
        "FakeQuantize, half zeros": (positive, quantizers),
        f"FakeQuantize, {CHANNELS} channels": (x, channel_quantizers),
        "Observe": (x, lambda number: observers(False, number)),
        "Observe, histogram": (x, lambda number: observers(True, number)),
    }
    runs = []
    for x, make in kinds.values():
        for length in (1, 1 + OPS_IN_A_ROW):
            session = open_session(make(length), optimize=False, provider=provider)
            runs.append(bound(session, {"x": x}, provider))
    seconds = interleaved(runs, rounds)
    return {
        kind: (seconds[2 * place + 1] - seconds[2 * place]) / OPS_IN_A_ROW for place, kind in enumerate(kinds)
    }


def measure_network(name: str, rounds: int, provider: str) -> tuple[float, dict[str, float]]:
    """Milliseconds of the float model, and ratios to it. Calibration copies its inputs to the GPU."""
    compiled = qc.compile(NETWORKS[name](), "w8a8", data=lambda: feeds(2), target="ort-cpu", device=provider)
    feed = next(feeds(1))
    plain = open_session(compiled.float_model, provider=provider)
    simulation = open_session(compiled.simulation, provider=provider)
    seconds, simulated = interleaved([bound(model, feed, provider) for model in (plain, simulation)], rounds)
    ratios = {"simulation": simulated / seconds}
    for kind in CALIBRATIONS:
        laps = Laps(lambda given: plain.run(None, given), rounds, time.perf_counter)
        requests = observed(compiled, kind == "histogram")
        OrtExecutor(provider=provider).observe(compiled.float_model, requests, laps)
        ratios[kind] = laps.ratio()
    return seconds * 1000, ratios


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK]...", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--batch", default=32, show_default=True, help="Images at once.")
@click.option("--elements", default=1 << 26, show_default=True, help="Length of the tensor of float32.")
@click.option("--rounds", default=31, type=click.IntRange(2), show_default=True, help="Runs of everything.")
@click.option("--provider", default="cuda", help="cpu, to try the bench out.")
def main(names: tuple[str, ...], batch: int, elements: int, rounds: int, provider: str) -> None:
    """Prints one row per operator and one per network."""
    try:
        provider = choose_provider(provider)
    except QcError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    seconds = measure_operators(elements, rounds, provider)
    show_operators(seconds, elements)
    networks.use_batch(batch)
    table = Table("network", "float, ms", "simulation", *CALIBRATIONS)
    for name in names or NETWORKS:
        milliseconds, ratios = measure_network(name, rounds, provider)
        table.add_row(name, f"{milliseconds:.2f}", *(f"{ratio:.3f}" for ratio in ratios.values()))
    Console().print(table)
    slowest = max(time_of_one for kind, time_of_one in seconds.items() if is_limited(kind))
    sys.exit(1 if slowest > LIMIT * seconds["Neg"] else 0)


def is_limited(kind: str) -> bool:
    """Whether the limit is meant for a kind of operator: those that run on every activation."""
    return kind.startswith("FakeQuantize") and "channels" not in kind


def show_operators(seconds: dict[str, float], elements: int) -> None:
    """Prints the first table."""
    table = Table("operator", "microseconds", "GB/s", "ratio to Neg", "limit")
    for kind, time_of_one in seconds.items():
        moved = elements * 4 * (1 if kind.startswith("Observe") else 2)  # bytes read and written
        bandwidth, ratio = moved / time_of_one / 1e9, time_of_one / seconds["Neg"]
        limit = f"{LIMIT:.2f}" if is_limited(kind) else ""
        table.add_row(kind, f"{time_of_one * 1e6:.1f}", f"{bandwidth:.0f}", f"{ratio:.3f}", limit)
    Console().print(table)


if __name__ == "__main__":
    main()
