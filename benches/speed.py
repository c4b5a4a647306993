"""Speed of simulation, integers and calibration, as ratios to the float model in the same run.

    python benches/speed.py resnet50 mobilenetv2 vit
    python benches/speed.py --target ort-cpu-amx
    python benches/speed.py --threads 1 --threads 2 --aimet-python PYTHON

The models run in turns, so that all see the same machine, and medians are compared. With one thread, time is
the processor time of the process, which other programs on the machine disturb less than the clock; with more
it is the clock. The networks have the shapes of the real ones, and random weights (models/networks.py).
Calibration is timed per sample: min-max, and with the histograms that all other schemes are computed from.
With a Python that has aimet-onnx, AIMET's simulation and calibration are measured, too.
Ends with exit code 1 above a limit; the limits are for one thread.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import onnx
from models.networks import NETWORKS, feeds
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.executor import Feed, Observation
from qc.runtime.executors.in_process import OrtExecutor
from qc.runtime.sessions.open import open_session

HERE = Path(__file__).parent
LIMITS = {
    "simulation": {"resnet50": 1.10, "mobilenetv2": 1.25, "vit": 1.05},
    "integer": {"resnet50": 0.34, "mobilenetv2": 0.50, "vit": 0.45},
    "calibration": {"resnet50": 1.10, "mobilenetv2": 1.30, "vit": 1.10},
    "histogram": {"resnet50": 1.5, "mobilenetv2": 2.0, "vit": 1.5},
}
CALIBRATION_SAMPLES = 8

Clock = Callable[[], float]


def clock_for(threads: int) -> Clock:
    """Threads that wait spend processor time too, so that several need the clock."""
    return time.process_time if threads == 1 else time.perf_counter


def interleaved(
    runs: Sequence[Callable[[], object]], rounds: int, clock: Clock = time.process_time
) -> list[float]:
    """Median seconds of every function, called in turns after one warm-up each."""
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, record in zip(runs, times, strict=True):
            start = clock()
            run()
            record.append(clock() - start)
    return [statistics.median(record) for record in times]


def single(model: onnx.ModelProto, threads: int) -> Callable[[], object]:
    """Runs ``model`` on one fixed feed."""
    session = open_session(model, threads=threads)
    feed = next(feeds(1))
    return lambda: session.run(None, feed)


def observed(compiled: qc.Compiled, histogram: bool) -> dict[str, set[Observation]]:
    """What calibration collects: of the activations that the compiled model quantizes."""
    graph = compiled.float_model.graph
    made = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    sites = [node.input[0] for node in compiled.model.graph.node if node.op_type == "QuantizeLinear"]
    return {name: {Observation("histogram" if histogram else "range")} for name in sites if name in made}


class Laps:
    """A stream of feeds that times its reader on each, and runs the float model in between."""

    def __init__(self, float_run: Callable[[Feed], object], count: int, clock: Clock) -> None:
        self.float_run = float_run
        self.count = count
        self.clock = clock
        self.reader: list[float] = []
        self.float: list[float] = []

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for feed in feeds(self.count):
            start = self.clock()
            self.float_run(feed)
            middle = self.clock()
            self.float.append(middle - start)
            yield feed
            self.reader.append(self.clock() - middle)

    def ratio(self) -> float:
        """Median time per sample over the float model's, leaving out the first, which warms up."""
        return statistics.median(self.reader[1:]) / statistics.median(self.float[1:])


def measure(name: str, target: str, threads: int, rounds: int) -> dict[str, float]:
    """Milliseconds of the float model, and the ratios."""
    model = NETWORKS[name]()
    compiled = qc.compile(model, "w8a8", data=lambda: feeds(CALIBRATION_SAMPLES), target=target)
    clock = clock_for(threads)
    runs = [single(made, threads) for made in (model, compiled.simulation, compiled.model)]
    plain, simulation, integer = interleaved(runs, rounds, clock)
    result = {"float": plain * 1000, "simulation": simulation / plain, "integer": integer / plain}
    for kind in ("calibration", "histogram"):
        laps = Laps(lambda _: runs[0](), rounds, clock)
        requests = observed(compiled, kind == "histogram")
        OrtExecutor(threads=threads).observe(compiled.float_model, requests, laps)
        result[kind] = laps.ratio()
    return result


def measure_aimet(python: str, name: str, threads: int, rounds: int) -> dict[str, float]:
    """AIMET's ratios to the float model, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        onnx.save(NETWORKS[name](), str(model))
        command = [python, str(HERE / "rivals" / "aimet_speed.py"), str(model), str(threads), str(rounds)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    ratios: dict[str, float] = json.loads(printed.splitlines()[-1])
    return ratios


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[NETWORK]...", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--rounds", type=click.IntRange(2), default=21, show_default=True, help="Runs of every model.")
@click.option("--threads", multiple=True, default=(1, 2), show_default=True, help="Threads; may be repeated.")
@click.option("--target", default="ort-cpu", show_default=True, help="What the integers are lowered for.")
@click.option("--aimet-python", metavar="PYTHON", help="A Python that has aimet-onnx.")
@click.option("--aimet-rounds", default=7, show_default=True, help="Runs of AIMET's simulation.")
def main(
    names: tuple[str, ...],
    rounds: int,
    threads: tuple[int, ...],
    target: str,
    aimet_python: str | None,
    aimet_rounds: int,
) -> None:
    """Prints one table for each number of threads, with one row per network; limits in brackets."""
    missed = False
    for count in threads:
        title = f"ratios to float, {target}, {count} thread{'s' if count > 1 else ''}"
        table = Table("network", "float, ms", *LIMITS, title=title)
        for name in names or NETWORKS:
            result = measure(name, target, count, rounds)
            table.add_row(name, f"{result['float']:.1f}", *(_cell(result, kind, name) for kind in LIMITS))
            missed |= count == 1 and any(result[kind] > limits[name] for kind, limits in LIMITS.items())
            if aimet_python is not None:
                ratios = measure_aimet(aimet_python, name, count, aimet_rounds)
                cells = (f"{ratios[kind]:.2f}" if kind in ratios else "none" for kind in LIMITS)
                table.add_row("  AIMET", "", *cells)
        Console().print(table)
    sys.exit(1 if missed else 0)


def _cell(result: dict[str, float], kind: str, name: str) -> str:
    return f"{result[kind]:.3f} ({LIMITS[kind][name]:.2f})"


if __name__ == "__main__":
    main()
