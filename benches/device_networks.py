"""Whole networks on the HTP's emulator against qc's simulations of them.

    python benches/device_networks.py cifar_resnet20 cifar_mobilenetv2 --samples 96

Every model is compiled for ``qnn-htp`` by ``w8a8`` with the lengths of its first feed. For each result on a
grid: the ratio of the emulator's numbers to the difference in dB, the share of equal codes and the largest
difference in steps, of a plain simulation and of ``to-simulation{device=qnn-htp}``. The models and
``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``. Needs the extra ``qnn``.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import click
import numpy as np
from accuracy import load_tasks, models_option
from devices import free_lengths
from onnx import ModelProto, numpy_helper
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.executor import Feed
from qc.runtime.devices.known import open_device

DEVICE = "qnn-htp"
CALIBRATING = 4


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


def rows(name: str, path: Path, feeds: list[Feed], samples: int) -> list[list[str]]:
    """A line for every result on a grid."""
    lengths = tuple(f"{dim}={length}" for dim, length in free_lengths(path, feeds[0]).items())
    size = len(next(iter(feeds[0].values())))
    compiled = qc.compile(path, "w8a8", data=feeds[:CALIBRATING], target=DEVICE, fix_shapes=lengths)
    device = open_device(DEVICE).open(compiled.model)
    simulations = [
        qc.Simulation(qc.compile(compiled.model, f"import-qdq, to-simulation{options}").simulation)
        for options in ("", "{device=qnn-htp}")
    ]
    some = feeds[: -(-samples // size)]
    wanted = [device.run(feed) for feed in some]
    found = [[one.run(feed) for feed in some] for one in simulations]
    table = []
    for output, step in steps_of(compiled.model).items():
        cells = [name, output, str(len(some) * size)]
        for of_one in found:
            made, given = (
                np.concatenate([np.ravel(one[output]) for one in runs]) for runs in (of_one, wanted)
            )
            cells += compared(made, given, step)
        table.append(cells)
    return table


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--samples", default=64, help="About how many samples to compare.")
@models_option
def main(names: tuple[str, ...], samples: int, models: Path) -> None:
    table = Table(
        "model", "result", "samples", "plain", "equal", "steps", "device", "equal", "steps", box=None
    )
    for name, task in load_tasks(models).items():
        if not names or name in names:
            made = task()
            feeds = list(itertools.islice(made.calib(), max(CALIBRATING, samples)))
            shapes = {key: np.shape(array) for key, array in feeds[0].items()}
            same = [one for one in feeds if {key: np.shape(array) for key, array in one.items()} == shapes]
            for cells in rows(name, models / "models" / Path(made.model).name, same, samples):
                table.add_row(*cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
