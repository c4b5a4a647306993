"""Speed of simulation, integer QDQ and min-max calibration, as ratios to the float model in the same run.

    python benches/speed.py resnet50 mobilenetv2 vit

One thread; the models run in turns, so that all see the same machine, and medians are compared. Time is the
processor time of the process, which other programs on the machine disturb less than the clock. The networks
have the shapes of the real ones and random weights (see networks.py). Ends with exit code 1 above a limit.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import click
import numpy as np
import onnx
from networks import NETWORKS, feeds
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.executor import Observation
from qc.runtime.executor import OrtExecutor
from qc.runtime.session import open_session

SIMULATION_LIMIT = {"resnet50": 1.15, "mobilenetv2": 1.40, "vit": 1.08}
CALIBRATION_LIMIT = 1.3
CALIBRATION_SAMPLES = 8


def interleaved(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median processor seconds of every function, called in turns after one warm-up each."""
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, record in zip(runs, times, strict=True):
            start = time.process_time()
            run()
            record.append(time.process_time() - start)
    return [statistics.median(record) for record in times]


def single(model: onnx.ModelProto) -> Callable[[], object]:
    """Runs ``model`` on one fixed feed with one thread."""
    session = open_session(model, threads=1)
    feed = next(feeds(1))
    return lambda: session.run(None, feed)


def observed(compiled: qc.Compiled) -> dict[str, Observation]:
    """What min-max calibration collects: the activations that the compiled model quantizes."""
    graph = compiled.float_model.graph
    made = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    sites = [node.input[0] for node in compiled.model.graph.node if node.op_type == "QuantizeLinear"]
    return {name: Observation() for name in sites if name in made}


class Laps:
    """A stream of feeds that times its reader on each, and runs the float model in between."""

    def __init__(self, float_run: Callable[[], object], count: int) -> None:
        self.float_run = float_run
        self.count = count
        self.reader: list[float] = []
        self.float: list[float] = []

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for feed in feeds(self.count):
            start = time.process_time()
            self.float_run()
            middle = time.process_time()
            self.float.append(middle - start)
            yield feed
            self.reader.append(time.process_time() - middle)

    def ratio(self) -> float:
        """Median time per sample over the float model's, leaving out the first, which warms up."""
        return statistics.median(self.reader[1:]) / statistics.median(self.float[1:])


def measure(name: str, rounds: int) -> dict[str, float]:
    """Milliseconds of the float model, and the three ratios."""
    model = NETWORKS[name]()
    compiled = qc.compile(model, "w8a8", data=lambda: feeds(CALIBRATION_SAMPLES), target="ort-cpu")
    runs = [single(model), single(compiled.simulation), single(compiled.model)]
    plain, simulation, integer = interleaved(runs, rounds)
    laps = Laps(runs[0], rounds)
    OrtExecutor(threads=1).observe(compiled.float_model, observed(compiled), laps)
    return {
        "float": plain * 1000,
        "simulation": simulation / plain,
        "integer": integer / plain,
        "calibration": laps.ratio(),
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK]...", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--rounds", default=21, show_default=True, help="Runs of every model.")
def main(names: tuple[str, ...], rounds: int) -> None:
    """Prints one row per network."""
    table = Table("network", "float, ms", "simulation", "limit", "calibration", "limit", "integer QDQ")
    missed = False
    for name in names or NETWORKS:
        result = measure(name, rounds)
        limit = SIMULATION_LIMIT[name]
        missed |= result["simulation"] > limit or result["calibration"] > CALIBRATION_LIMIT
        table.add_row(
            name,
            f"{result['float']:.1f}",
            f"{result['simulation']:.3f}",
            f"{limit:.2f}",
            f"{result['calibration']:.3f}",
            f"{CALIBRATION_LIMIT:.2f}",
            f"{result['integer']:.3f}",
        )
    Console().print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
