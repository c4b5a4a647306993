"""Whole networks on the HTP's emulator against qc's simulations of them.

    python benches/device_networks.py cifar_resnet20 cifar_mobilenetv2 --samples 1000

Every model is compiled for ``qnn-htp`` by ``w8a8``, as by ``devices.py``, and runs the samples that it is
scored on. For each result on a grid: the ratio of the emulator's numbers to the difference in dB, the share
of equal codes and the largest difference in steps, of a plain simulation and of
``to-simulation{device=qnn-htp}``. The models and ``score.py`` lie in a folder of their own (``--models``), as
for ``accuracy.py``. Needs the extra ``qnn``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from devices import whole_samples, with_fixed_lengths
from models.labelled import load_tasks, models_option
from onnx import ModelProto, numpy_helper
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.executor import Feed
from qc.runtime.devices.known import open_device

DEVICE = "qnn-htp"


def steps_of(model: ModelProto) -> dict[str, float]:
    """The scale of every result that a dequantize op makes."""
    constants = {one.name: one for one in model.graph.initializer}
    return {
        node.output[0]: float(numpy_helper.to_array(constants[node.input[1]]).ravel()[0])
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.output[0] in {one.name for one in model.graph.output}
    }


def compared(found: np.ndarray, wanted: np.ndarray, step: float) -> list[str]:
    """Decibels, share of equal codes, and the largest difference in steps."""
    apart = found.astype(np.float64) - wanted
    steps = np.rint(np.abs(apart) / step)
    if not steps.any():
        return ["equal", "100.0%", "0"]
    decibels = 10 * np.log10(np.sum(np.square(wanted, dtype=np.float64)) / np.sum(np.square(apart)))
    return [f"{decibels:.1f} dB", f"{np.mean(steps == 0):.1%}", f"{steps.max():.0f}"]


def rows(name: str, task: Any, folder: Path) -> list[list[str]]:
    """A line for every result on a grid."""
    fixed = with_fixed_lengths(task, folder)
    compiled = fixed.compiled("w8a8", DEVICE)
    simulations = [
        qc.Simulation(qc.compile(compiled.model, f"import-qdq, to-simulation{options}").simulation)
        for options in ("", "{device=qnn-htp}")
    ]
    run_by = [fixed.runner(opened) for opened in (open_device(DEVICE).open(compiled.model), *simulations)]
    results: list[list[list[np.ndarray]]] = []

    def run(feed: Feed) -> list[np.ndarray]:
        results.append([run_by_one(feed) for run_by_one in run_by])
        return results[-1][0]

    task.evaluate(run)
    table = []
    outputs = [output.name for output in compiled.model.graph.output]
    for output, step in steps_of(compiled.model).items():
        place = outputs.index(output)
        emulated, plain, device = (
            np.concatenate([np.ravel(of_feed[by][place]) for of_feed in results]) for by in range(len(run_by))
        )
        table.append([name, output, *compared(plain, emulated, step), *compared(device, emulated, step)])
    return table


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--samples", default=64, help="About how many samples to compare.")
@models_option
def main(names: tuple[str, ...], samples: int, models: Path) -> None:
    table = Table("model", "result", "plain", "equal", "steps", "device", "equal", "steps", box=None)
    for name, task in load_tasks(models).items():
        if not names or name in names:
            for cells in rows(name, task(whole_samples(name, samples)), models):
                table.add_row(*cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
